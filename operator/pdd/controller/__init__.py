"""The Kubernetes operator: observe both clusters, plan, render, diff, apply, report."""
