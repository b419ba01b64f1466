"""A small Kubernetes client on aiohttp and orjson: credentials, calls, server-side apply, watches with a watchdog."""
