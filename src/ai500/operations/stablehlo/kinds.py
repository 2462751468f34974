"""Kinds of StableHLO's operators, by name without the dialect."""

from __future__ import annotations

from collections.abc import Mapping

from ai500.operations.stablehlo.program import VIEWS


def _rows(table: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for kind, names in table.items() for name in names.split()}


#: Operators whose kind follows from the name alone; the tracer reads the others' attributes.
KINDS = {
    **_rows(
        {
            "add": "add subtract",
            "mul": "multiply square",
            "div": "divide remainder",
            "sqrt": "sqrt",
            "rsqrt": "rsqrt",
            "exp": """exponential exponential_minus_one log log_plus_one sine cosine tan
                atan2 power cbrt erf erfc erf_inv asin acos atan sinh cosh asinh acosh atanh
                asin_acos_kernel atan_kernel lgamma digamma bessel_i1e polygamma zeta next_after""",
            "sigmoid": "logistic",
            "tanh": "tanh",
            "clamp": "clamp",
            "compare": """compare maximum minimum abs negate sign floor ceil round_nearest_afz
                round_nearest_even is_finite is_inf is_pos_inf is_neg_inf""",
            "sum": "reduce scatter",
            "sort": "sort top_k",
            "fft": "fft",
            "batch_norm": "batch_norm_training batch_norm_inference",
            "batch_norm_backward": "batch_norm_grad",
            "pool_backward": "select_and_scatter",
            # Communication and partitions: no arithmetic of the model.
            "data_movement": """constant iota concatenate pad gather dynamic_gather select
                dynamic_update_slice real imag complex conj tuple get_tuple_element
                rng rng_bit_generator after_all create_token partition_id replica_id
                all_reduce all_gather all_to_all reduce_scatter collective_permute
                collective_broadcast send recv infeed outfeed get_dimension_size
                set_dimension_size constant_like and or xor not popcnt count_leading_zeros
                shift_left shift_right_logical shift_right_arithmetic""",
        }
    ),
    **dict.fromkeys(VIEWS, "view"),
}
