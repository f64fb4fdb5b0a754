"""Real virtual machines with their own kernel: a kubeadm cluster by Vagrant, and daytwo's deploys against it."""
