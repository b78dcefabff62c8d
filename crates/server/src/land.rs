//! Bringing a run's result into its base.

use std::sync::Arc;

use bulkhead_model::RunId;

use crate::{Caller, Code, LandRequest, LandView, Problem, plane::Plane};

pub(crate) async fn run(
    _plane: &Arc<Plane>,
    _caller: &Caller,
    _run: RunId,
    _request: LandRequest,
) -> Result<LandView, Problem> {
    Err(Problem::new(Code::Internal, "landing is not built yet"))
}
