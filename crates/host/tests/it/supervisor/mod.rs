//! Supervised agents (H14), on real machines: this one, a real sshd, machines that lack what others have.

mod agents;
mod exact;
mod lost;
mod machine;
mod network;
mod shells;
mod ssh;
