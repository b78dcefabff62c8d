//! Supervised agents (H14), on real machines: this one, a real sshd, machines that lack what others have.

mod exact;
mod machine;
