"""Autoscalers: what kube-controller-manager does with each HorizontalPodAutoscaler now, computed from what it reads, and what is wrong."""

from roles.engine.autoscaling.calculator import MetricResult
from roles.engine.autoscaling.controller import Leadership, see_leader
from roles.engine.autoscaling.created import RangeRule, as_created, range_rules
from roles.engine.autoscaling.judge import JudgedAutoscaler, judge, turns
from roles.engine.autoscaling.look import AutoscalerLook, any_autoscaler, look_at, managers_of, see_controller
from roles.engine.autoscaling.model import HPA, Autoscaler, Behavior, ScalingController
from roles.engine.autoscaling.owners import LAST_APPLIED, without_replicas
from roles.engine.autoscaling.read import HPAS_PATH, VPAS_PATH, ScalingWorld, read_autoscalers
from roles.engine.autoscaling.rules import ScalingRule
from roles.engine.autoscaling.vertical import IN_PLACE, PROVIDED, VPA, requests_of
from roles.engine.autoscaling.vertical_problems import JudgedVertical, judge_vertical
from roles.engine.autoscaling.vertical_read import VerticalWorld, read_verticals

__all__ = [
    "HPA",
    "HPAS_PATH",
    "IN_PLACE",
    "LAST_APPLIED",
    "PROVIDED",
    "VPA",
    "VPAS_PATH",
    "Autoscaler",
    "AutoscalerLook",
    "Behavior",
    "JudgedAutoscaler",
    "JudgedVertical",
    "Leadership",
    "MetricResult",
    "RangeRule",
    "ScalingController",
    "ScalingRule",
    "ScalingWorld",
    "VerticalWorld",
    "any_autoscaler",
    "as_created",
    "clock",
    "judge",
    "judge_vertical",
    "look_at",
    "managers_of",
    "range_rules",
    "read_autoscalers",
    "read_verticals",
    "requests_of",
    "see_controller",
    "see_leader",
    "turns",
    "without_replicas",
]
