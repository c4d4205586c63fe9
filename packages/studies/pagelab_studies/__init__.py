"""Published results, measured again: each paper's figures and ours, with the reason for each difference.

A reproduction is one module with a `REPRODUCTION` and one entry here.
"""

from pagelab_studies import (
    hardware_demand_paging,
    hash_dont_cache,
    hash_dont_cache_variants,
    hash_dont_cache_window,
    mfoe,
    mfoe_programs,
    mfoe_variants,
    ptemagnet,
    ptemagnet_variants,
    software_translation_cache,
    software_translation_cache_variants,
)
from pagelab_studies.study import Reproduction

REPRODUCTIONS: dict[str, Reproduction] = {
    module.REPRODUCTION.name: module.REPRODUCTION
    for module in (
        hash_dont_cache,
        hash_dont_cache_variants,
        hash_dont_cache_window,
        mfoe,
        mfoe_programs,
        mfoe_variants,
        ptemagnet,
        ptemagnet_variants,
        software_translation_cache,
        software_translation_cache_variants,
        hardware_demand_paging,
    )
}

__all__ = ["REPRODUCTIONS", "Reproduction"]
