"""FlashInfer's calls on the CPU: `import shadowgraph.flashinfer as flashinfer`.

Signatures, defaults, shapes and conventions are FlashInfer's. Options that only make it faster do nothing; what changes
numbers is done, or refused by name (NotImplementedError). Wrong input raises shadowgraph.ShadowgraphError, whose
findings name FlashInfer's arguments, and writes nothing.
"""

from .attention import (
    BatchAttention as BatchAttention,
    BatchAttentionWithAttentionSinkWrapper as BatchAttentionWithAttentionSinkWrapper,
)
from .cascade import (
    BatchDecodeWithSharedPrefixPagedKVCacheWrapper as BatchDecodeWithSharedPrefixPagedKVCacheWrapper,
    BatchPrefillWithSharedPrefixPagedKVCacheWrapper as BatchPrefillWithSharedPrefixPagedKVCacheWrapper,
    MultiLevelCascadeAttentionWrapper as MultiLevelCascadeAttentionWrapper,
    merge_state as merge_state,
    merge_state_in_place as merge_state_in_place,
    merge_states as merge_states,
)
from .decode import (
    BatchDecodeWithPagedKVCacheWrapper as BatchDecodeWithPagedKVCacheWrapper,
    CUDAGraphBatchDecodeWithPagedKVCacheWrapper as CUDAGraphBatchDecodeWithPagedKVCacheWrapper,
    fast_decode_plan as fast_decode_plan,
    single_decode_with_kv_cache as single_decode_with_kv_cache,
    trtllm_batch_decode_with_kv_cache as trtllm_batch_decode_with_kv_cache,
)
from .mla import (
    BatchMLAPagedAttentionWrapper as BatchMLAPagedAttentionWrapper,
    trtllm_batch_decode_with_kv_cache_mla as trtllm_batch_decode_with_kv_cache_mla,
)
from .page import (
    append_paged_kv_cache as append_paged_kv_cache,
    append_paged_mla_kv_cache as append_paged_mla_kv_cache,
    get_batch_indices_positions as get_batch_indices_positions,
    get_seq_lens as get_seq_lens,
)
from .prefill import (
    BatchPrefillWithPagedKVCacheWrapper as BatchPrefillWithPagedKVCacheWrapper,
    BatchPrefillWithRaggedKVCacheWrapper as BatchPrefillWithRaggedKVCacheWrapper,
    single_prefill_with_kv_cache as single_prefill_with_kv_cache,
    single_prefill_with_kv_cache_return_lse as single_prefill_with_kv_cache_return_lse,
    trtllm_batch_context_with_kv_cache as trtllm_batch_context_with_kv_cache,
)

__version__ = "0.6.18"  # whose signatures these are
