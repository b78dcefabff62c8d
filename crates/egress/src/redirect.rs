//! Redirects: each hop is a new target, and the whole decision begins anew (N21).
//!
//! This is the arithmetic alone: a client that follows redirects asks [`Redirects::follow`] for the next
//! hop and then connects through [`crate::Egress`] like the first time. Each hop counts as one request.

use std::collections::HashSet;

use url::Url;

use crate::{
    decision::{Decision, Why},
    target::{Scheme, Target},
};

/// The chain of one request.
#[derive(Debug)]
pub struct Redirects {
    current: Url,
    schemes: &'static [Scheme],
    max: u8,
    followed: u8,
    seen: HashSet<Url>,
}

/// Where a redirect leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    pub url: Url,
    pub target: Target,
    pub origin: Origin,
}

/// Credentials must not go along to another origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Same,
    Other,
}

impl Redirects {
    /// Starts at the URL that was asked for; at most `max` redirects are followed.
    pub fn new(start: Url, schemes: &'static [Scheme], max: u8) -> Self {
        let mut redirects = Self {
            current: start,
            schemes,
            max,
            followed: 0,
            seen: HashSet::new(),
        };
        redirects.seen.insert(without_fragment(&redirects.current));
        redirects
    }

    /// Reads a `Location` relative to where the chain is now.
    pub fn follow(&mut self, location: &[u8]) -> Result<Hop, Decision> {
        let refuse = |why| Decision::unread(&String::from_utf8_lossy(location), why);
        if self.followed >= self.max {
            return Err(refuse(Why::TooManyRedirects(self.max)));
        }
        let text = std::str::from_utf8(location).map_err(|_| refuse(Why::BadRedirect))?;
        let url = self
            .current
            .join(text)
            .map_err(|_| refuse(Why::BadRedirect))?;
        let target = Target::from_parsed(&url, self.schemes)?;
        if self.current.scheme() == "https" && !target.scheme().is_tls() {
            return Err(Decision::new(&target, Why::Downgrade));
        }
        if !self.seen.insert(without_fragment(&url)) {
            return Err(Decision::new(&target, Why::RedirectLoop));
        }
        let origin = match url.origin() == self.current.origin() {
            true => Origin::Same,
            false => Origin::Other,
        };
        self.followed += 1;
        self.current = url.clone();
        Ok(Hop {
            url,
            target,
            origin,
        })
    }

    /// How many redirects were followed so far.
    pub const fn followed(&self) -> u8 {
        self.followed
    }
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}
