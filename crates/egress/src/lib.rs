//! The one decision on outgoing connections (D10), and the only way to make one.
//!
//! Whoever wants to reach something outside (the sandbox's door, the model gateway, later `host.fetch`,
//! the dialer and ssh) says where to, as a [`Target`], and on whose behalf, as a [`Grant`]; [`Egress`]
//! then walks one path, in this order, and every step can refuse:
//!
//! 1. [`Target::from_url`] / [`Target::from_authority`]: parse, scheme, user name, host, port;
//! 2. [`Egress::check`]: address literals, names of the machine itself and of metadata services, then
//!    the rule for this name and port. Pure: nothing is sent;
//! 3. resolve, in bounded time, through DNS alone (never `/etc/hosts`, never a search domain);
//! 4. filter the answer by [`AddressClass`];
//! 5. connect, to an address of that answer and no other;
//! 6. look at the address of the connected peer, and judge it again;
//! 7. on a redirect, [`Redirects`] gives the next target and the walk begins anew.
//!
//! What came out is a [`Decision`]. Only the operator can relax step 4, by naming exact hosts in
//! [`AllowPrivate`], and only for private networks. No variable of the environment counts here (N23), and
//! nothing turns off the verification of certificates.
//!
//! Deliberately absent: anything of an HTTP server, and any knowledge of sandboxes.

mod address;
mod connector;
mod decision;
mod dial;
mod egress;
mod grant;
mod redirect;
mod resolve;
mod stream;
mod target;
mod tls;
mod upstream;

pub use address::AddressClass;
pub use connector::{Connection, Connector};
pub use decision::{Decision, EgressError, Why};
pub use egress::{Egress, EgressConfig, EgressLimits};
pub use grant::{AllowPrivate, Grant};
pub use redirect::{Hop, Origin, Redirects};
pub use resolve::{DnsResolver, Resolve, ResolveError};
pub use stream::Link;
pub use target::{Scheme, Target};
pub use tls::{Tls, TlsError};
pub use upstream::{UpstreamProxy, UpstreamProxyError};
