"""A paged pool of keys and values, as calls take it."""

from typing import Any, NamedTuple


class Cache(NamedTuple):
    """A cache of any layout. A tuple (k_cache, v_cache) is enough for two NHD tensors. _core.pyi has shapes.

    >>> Cache(latents, layout="MLA_LATENT", head_dim_vo=512)
    """

    k_cache: Any
    v_cache: Any = None
    layout: str = "NHD"
    head_dim_vo: int = 0
    head_dim_qk: int = 0
    k_scales: Any = None
    v_scales: Any = None
    k_scale: float = 1.0
    v_scale: float = 1.0
