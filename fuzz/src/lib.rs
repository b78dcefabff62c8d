//! What is fed with anything at all. Each target is a function that panics where something that must hold does not.

mod egress_url;
mod manifest;
mod pipe_decoder;
#[cfg(feature = "engine")]
mod value_table;

pub use egress_url::egress_url;
pub use manifest::manifest;
pub use pipe_decoder::pipe_decoder;
#[cfg(feature = "engine")]
pub use value_table::value_table;

/// A target, with inputs to begin from.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    pub seeds: fn() -> Vec<Vec<u8>>,
}

pub fn targets() -> Vec<Target> {
    vec![
        Target {
            name: "pipe_decoder",
            run: pipe_decoder,
            seeds: pipe_decoder::seeds,
        },
        Target {
            name: "manifest",
            run: manifest,
            seeds: manifest::seeds,
        },
        Target {
            name: "egress_url",
            run: egress_url,
            seeds: egress_url::seeds,
        },
        #[cfg(feature = "engine")]
        Target {
            name: "value_table",
            run: value_table,
            seeds: value_table::seeds,
        },
    ]
}
