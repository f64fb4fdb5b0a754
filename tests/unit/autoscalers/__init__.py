"""The deploys of autoscalers."""
