"""The decisions themselves, pure: KV law, link arithmetic, pipeline choice, handoff mode, RLD scaling law."""
