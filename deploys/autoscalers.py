"""Set HorizontalPodAutoscalers and VerticalPodAutoscalers as in the inventory's data: planned with what the controller would do now,
applied, proven by its conditions and by its count.

pyinfra inventories/prod.py deploys/autoscalers.py --dry
pyinfra inventories/prod.py deploys/autoscalers.py -y
pyinfra inventories/prod.py deploys/autoscalers.py --data autoscalers=shop/deployment/web=absent -y
"""

from roles.autoscalers import autoscalers

autoscalers()
