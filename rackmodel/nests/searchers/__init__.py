"""Who finds the best mapping: the searchers, and what they share.

contract: a question, its features, which searcher is asked · table: the searchers.
The space: space, stored_tensors, spatial_vectors, home_vectors, rank_merging; tiles: tile_axis, divisor_axis, list_axes.
The count: word_terms over prices, fan_state.
Tables (dynamic programming): order_plan, node_prices, cost_table, tile_options, backtrack, mapping_steps, slices,
slice_enumeration; perfect and ceil_deep (with relaxed_bound) search with them, fusion (region_space, region_tiles,
region_branch) too.
Lists: ceil_two_level (pareto_tiles, two_level_cost), home (home_tiles, home_costs). Oracle: cpsat (cpsat_space).
"""
