"""KV connector for vLLM: a request may hold more tokens than the remote KV covers.

Stock vLLM assumes that a handle covers the whole prompt. A handoff gives the handle of the prompt together with
prompt + eager tokens; here the number of tokens to load is clamped to what the owner really has, and the engine
extends over the rest. Mounted into vLLM's container; it imports nothing of this project.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl import NixlPullConnector
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler


def tokens_to_load(remote_tokens: int, prompt_tokens: int, computed_tokens: int) -> int:
    """Tokens to read from the owner: what it has, within the prompt, beyond what is held locally. Never negative."""
    return max(0, min(remote_tokens, prompt_tokens) - computed_tokens)


class ClampingScheduler(NixlPullConnectorScheduler):
    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> Any:
        params = request.kv_transfer_params or {}
        remote_tokens = params.get("remote_num_tokens")
        if not params.get("do_remote_prefill") or not remote_tokens:
            return super().get_num_new_matched_tokens(request, num_computed_tokens)
        count = tokens_to_load(remote_tokens, request.num_prompt_tokens, num_computed_tokens)
        return count, count > 0


class PddNixlConnector(NixlPullConnector):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The parent builds its scheduler itself and offers no hook for another class.
        if self.connector_scheduler is not None:
            self.connector_scheduler.__class__ = ClampingScheduler
