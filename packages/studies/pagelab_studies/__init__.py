"""Published results, measured again: each paper's figures and ours, with the reason for each difference.

A reproduction is one module with a `REPRODUCTION` and one entry here.
"""

from pagelab_studies import (
    hardware_demand_paging,
    hardware_demand_paging_changes,
    hardware_demand_paging_indirect,
    hardware_demand_paging_window,
    hash_dont_cache,
    hash_dont_cache_changes,
    hash_dont_cache_open,
    hash_dont_cache_related,
    hash_dont_cache_variants,
    hash_dont_cache_window,
    mfoe,
    mfoe_changes,
    mfoe_contention,
    mfoe_programs,
    mfoe_programs_window,
    mfoe_threads,
    mfoe_variants,
    mfoe_window,
    ptemagnet,
    ptemagnet_changes,
    ptemagnet_guests,
    ptemagnet_variants,
    ptemagnet_window,
    software_translation_cache,
    software_translation_cache_changes,
    software_translation_cache_variants,
    translation_designs,
)
from pagelab_studies.study import Reproduction

REPRODUCTIONS: dict[str, Reproduction] = {
    module.REPRODUCTION.name: module.REPRODUCTION
    for module in (
        hash_dont_cache,
        hash_dont_cache_changes,
        hash_dont_cache_open,
        hash_dont_cache_related,
        hash_dont_cache_variants,
        hash_dont_cache_window,
        mfoe,
        mfoe_changes,
        mfoe_contention,
        mfoe_programs,
        mfoe_programs_window,
        mfoe_threads,
        mfoe_variants,
        mfoe_window,
        ptemagnet,
        ptemagnet_changes,
        ptemagnet_guests,
        ptemagnet_variants,
        ptemagnet_window,
        software_translation_cache,
        software_translation_cache_changes,
        software_translation_cache_variants,
        hardware_demand_paging,
        hardware_demand_paging_changes,
        hardware_demand_paging_indirect,
        hardware_demand_paging_window,
        translation_designs,
    )
}

__all__ = ["REPRODUCTIONS", "Reproduction"]
