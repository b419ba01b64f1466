"""The local runner: one YAML file as processes of this machine, started in order and ended without a trace."""
