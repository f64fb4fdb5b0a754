"""Autoscalers: what kube-controller-manager does with each HorizontalPodAutoscaler now, computed from what it reads, and what is wrong."""

from roles.engine.autoscaling import controller, created, look, owners, vertical
from roles.engine.autoscaling.calculator import MetricResult
from roles.engine.autoscaling.judge import JudgedAutoscaler, judge, turns
from roles.engine.autoscaling.model import HPA, ODD, Autoscaler, Behavior, Condition, MetricSpec, ScalingController
from roles.engine.autoscaling.read import HPAS_PATH, VPAS_PATH, ScalingWorld, read_autoscalers
from roles.engine.autoscaling.rules import ScalingRule
from roles.engine.autoscaling.vertical_problems import JudgedVertical, judge_vertical
from roles.engine.autoscaling.vertical_read import VerticalWorld, read_verticals

__all__ = [
    "HPA",
    "HPAS_PATH",
    "ODD",
    "VPAS_PATH",
    "Autoscaler",
    "Behavior",
    "Condition",
    "JudgedAutoscaler",
    "JudgedVertical",
    "MetricResult",
    "MetricSpec",
    "ScalingController",
    "ScalingRule",
    "ScalingWorld",
    "VerticalWorld",
    "controller",
    "created",
    "judge",
    "judge_vertical",
    "look",
    "owners",
    "read_autoscalers",
    "read_verticals",
    "turns",
    "vertical",
]
