//! The life of a run: a pure machine that the control plane asks before it does anything.
//!
//! [`step`] takes a [`Run`], a [`RunEvent`] and the server's time, and returns the next [`Run`] with the
//! [`Effect`]s to perform, or says by name why the event is [`Refused`]. It draws no random number and
//! reads no clock: fences count up, gate ids and effect ids are derived from the run's id and version.
//! The caller commits the new run and its effects together, then performs each run's effects in the order
//! of their ids; every effect may be performed more than once.
//!
//! ```text
//!  run:       Created ──Start──▶ Running ◀──Resume── Paused
//!                │                │ │ │ └──Pause──────▶ │
//!              Cancel             │ │ │                 │
//!                │     last Done  │ │ └─Cancel, run cap─┤  with work in flight ──▶ Stopping ──▶ Cancelled
//!                ▼                │ │                   │                              │        or Failed
//!            Cancelled ◀──────────┼─┼──Cancel, nothing in flight                       │
//!                                 ▼ └──Reject, gate expired──▶ Rejected ◀──Reject──────(Paused)
//!                             Completed
//!
//!  one phase: Waiting ─▶ Dispatched ──Claimed──▶ Running ──success, delivered──▶ AtGate(review) ──Approve──▶ Done
//!                ▲  │        ▲  ▲                  │  │  └──the same, no gate on success────────────────────▶ Done
//!                   ▼        │  │                  │  └──failed, lost, cap──▶ retries left? ─▶ Dispatched
//!                  Held ──Resume└──Restarted───────┘                          none left?    ─▶ AtGate(parked)
//!                   ▲        │
//!                   └────────┴── Pause that stops, or anything that would dispatch while the run is paused
//!            AtGate ──SendBack(comment), or Approve where it parked──▶ Dispatched (Held while paused)
//! ```
//!
//! Each arrow in a sentence:
//! - **Start** names the commit that the run begins from, and dispatches the first phase.
//! - **Claimed** says that a worker holds the lease; it is committed before any process is started, so a
//!   phase that is only dispatched can be cancelled without anything to stop.
//! - **Started** notes that the phase's agent or command runs.
//! - **Pushed** is the git gateway's record of `old → new`, committed before the push is forwarded.
//! - **PhaseEnded** with success makes the phase done only if the branch is where the recorded push put it
//!   (or, where nothing was pushed, where the phase began): work that was not delivered is not done.
//! - **PushConfirmed** is recovery's word that a recorded push landed and carries the phase's completing
//!   commit, though its report was lost: the phase is done and is not run again (R14).
//! - **LeaseLost** ends the attempt as lost, and has it stopped, because silent is not gone; retries first,
//!   then it parks (R13).
//! - **CapReached** stops the attempt; a phase's cap parks it, a run's cap fails the run, since no phase
//!   could help there.
//! - **Approve** after a success makes the phase done and dispatches exactly the next one, once; the last
//!   one completes the run. Where a phase parked, it runs again (R2).
//! - **SendBack** runs the same phase again, from the branch, with the comment; **Reject** ends the run.
//! - **GateExpired** rejects the run where the gate's policy says so. Silence never approves.
//! - **Pause** holds every further dispatch; the phase in flight ends by itself, or is stopped and held,
//!   as the event says. Gates take answers meanwhile and their clocks stand still. A paused run never
//!   completes: what would complete it takes effect at **Resume**.
//! - **Cancel** is legal until the run has ended; with a phase in flight the run is Stopping until that
//!   attempt is known to be over.
//! - **Restarted** dispatches again whatever was in flight, from the branch, with a new fence (R14).
//!
//! An event that shows any fence but the one in flight is refused in every state.

mod effect;
mod event;
mod plan;
mod refused;
mod spent;
mod state;
mod step;

pub use effect::{Action, Effect, EffectId, Transition};
pub use event::{Failure, PauseMode, PhaseEnd, RunEvent};
pub use plan::{PhasePlan, Plan, PlanError, Repository, RunCaps};
pub use refused::Refused;
pub use spent::{Cap, CapKind, CapScope, Spent};
pub use state::{Answered, Attempt, End, Gate, GateWhy, Phase, PhaseState, Push, Run, Status};
pub use step::step;
