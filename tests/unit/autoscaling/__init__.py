"""The rules of autoscalers."""
