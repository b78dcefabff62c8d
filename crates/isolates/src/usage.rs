//! What an invocation used, as its result says it, and which limits came near.

use bulkhead_model::plugin::InvocationLimits;
use bulkhead_wire::isolates::{Usage, Warning};

use crate::{fault::millis, logs};

/// P21: of `host.crypto`.
const CRYPTO_OPERATIONS_MAX: u64 = 200;
const CRYPTO_BYTES_MAX: u64 = 8 << 20;
/// P21: of the installation, within a minute.
const FETCHES_MAX: u64 = 60;

/// Limits of which more than four fifths were used.
pub fn warnings(usage: &Usage, limits: &InvocationLimits) -> Vec<Warning> {
    let rows = [
        (
            "wall_ms",
            millis(limits.wall),
            usage.wall_ms.saturating_sub(usage.queued_ms),
        ),
        (
            "memory_bytes",
            limits.memory.group_bytes(),
            usage.memory_peak_bytes,
        ),
        ("heap_bytes", limits.memory.limit_bytes(), usage.heap_bytes),
        ("result_bytes", limits.result_bytes, usage.result_bytes),
        ("fetches", FETCHES_MAX, usage.fetches.into()),
        (
            "crypto_operations",
            CRYPTO_OPERATIONS_MAX,
            usage.crypto_operations.into(),
        ),
        ("crypto_bytes", CRYPTO_BYTES_MAX, usage.crypto_bytes),
        ("log_lines", logs::LINES_MAX.into(), usage.log_lines.into()),
        ("log_bytes", logs::BYTES_MAX, usage.log_bytes),
    ];
    rows.into_iter()
        .filter(|(_, allowed, used)| is_near(*allowed, *used))
        .map(|(limit, allowed, used)| Warning {
            limit: limit.to_owned(),
            allowed,
            used,
        })
        .collect()
}

fn is_near(allowed: u64, used: u64) -> bool {
    u128::from(used) * 5 > u128::from(allowed) * 4
}

#[cfg(test)]
mod tests {
    use bulkhead_model::plugin::{Demands, InvocationKind};

    use super::*;

    #[test]
    fn limits_of_which_more_than_four_fifths_were_used_are_named() {
        let limits = InvocationLimits::of(InvocationKind::Middleware, &Demands::default());
        let usage = Usage {
            wall_ms: 4_500,
            queued_ms: 499,
            crypto_operations: 160,
            log_lines: 206,
            ..Usage::default()
        };
        let named: Vec<String> = warnings(&usage, &limits)
            .into_iter()
            .map(|near| near.limit)
            .collect();
        assert_eq!(named, ["wall_ms", "log_lines"]);
        assert_eq!(warnings(&Usage::default(), &limits), []);
    }
}
