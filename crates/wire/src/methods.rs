//! The functions of `host`: one table, from which the invocation process makes the object and by which the broker knows
//! what is asked of it.

/// How a function of `host` is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// In the invocation process, at once: it needs no authority.
    Inside,
    /// By the broker itself; the answer is a promise.
    Broker,
    /// By the platform, through the broker; the answer is a promise.
    Platform,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Never changes, and is never used again for another.
    pub number: u32,
    /// Where it is: `session.llm.complete` is `host.session.llm.complete`.
    pub path: &'static str,
    pub carried_out: Where,
    /// How many calls one invocation has. Calls with the same `counted` share it.
    pub calls_max: Option<u32>,
    /// What the calls are counted as.
    pub counted: &'static str,
}

const fn method(number: u32, path: &'static str, carried_out: Where) -> Method {
    Method {
        number,
        path,
        carried_out,
        calls_max: None,
        counted: path,
    }
}

const fn capped(number: u32, path: &'static str, counted: &'static str, calls_max: u32) -> Method {
    Method {
        number,
        path,
        carried_out: Where::Platform,
        calls_max: Some(calls_max),
        counted,
    }
}

use Where::{Broker, Inside, Platform};

/// All functions of `host`, by number. The limits are SPEC's P21.
pub const METHODS: &[Method] = &[
    method(1, "log", Inside),
    method(2, "settings.get", Inside),
    method(3, "settings.getSecret", Platform),
    method(4, "fetch", Broker),
    method(10, "crypto.hash", Inside),
    method(11, "crypto.hmac", Inside),
    method(12, "crypto.aesCbcDecrypt", Inside),
    method(13, "crypto.ed25519Sign", Inside),
    method(14, "crypto.ed25519Verify", Inside),
    method(15, "crypto.jwtVerify", Inside),
    method(16, "crypto.timingSafeEqual", Inside),
    method(17, "crypto.randomBytes", Inside),
    method(18, "crypto.randomUUID", Inside),
    method(20, "crypto.base64.encode", Inside),
    method(21, "crypto.base64.decode", Inside),
    method(22, "crypto.hex.encode", Inside),
    method(23, "crypto.hex.decode", Inside),
    method(30, "session.messages", Platform),
    method(31, "session.post", Platform),
    capped(32, "session.sendError", "session.sendError", 5),
    method(33, "session.todos.list", Platform),
    method(34, "session.todos.set", Platform),
    method(35, "session.timers.list", Platform),
    method(36, "session.timers.set", Platform),
    method(37, "session.timers.cancel", Platform),
    capped(38, "session.llm.complete", "session.llm.complete", 5),
    method(39, "session.info", Platform),
    method(50, "agents.list", Platform),
    method(51, "agents.ask", Platform),
    method(52, "agents.send", Platform),
    method(55, "models.list", Platform),
    method(60, "workspace.read", Platform),
    method(61, "workspace.write", Platform),
    method(62, "workspace.list", Platform),
    method(63, "workspace.stat", Platform),
    method(64, "workspace.remove", Platform),
    method(65, "workspace.move", Platform),
    capped(70, "llm.complete", "llm.complete", 5),
    method(75, "decide.noul", Platform),
    method(76, "decide.choose", Platform),
    method(77, "decide.score", Platform),
    capped(80, "media.upload", "media", 10),
    capped(81, "media.transcode", "media", 10),
    capped(82, "media.info", "media", 10),
    capped(90, "ssh.command", "ssh.command", 10),
    capped(95, "connection.send", "connection.send", 20),
];

/// The method of a number.
pub fn by_number(number: u32) -> Option<&'static Method> {
    METHODS
        .binary_search_by_key(&number, |method| method.number)
        .ok()
        .map(|index| &METHODS[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P4: numbers and paths mean one thing each, and calls that are counted together have one limit.
    #[test]
    fn p4_the_table_of_methods_is_in_order_and_says_nothing_twice() {
        for pair in METHODS.windows(2) {
            assert!(pair[0].number < pair[1].number, "{pair:?}");
        }
        for (index, method) in METHODS.iter().enumerate() {
            assert_eq!(by_number(method.number), Some(method));
            for other in &METHODS[index + 1..] {
                assert_ne!(method.path, other.path);
                if method.counted == other.counted {
                    assert_eq!(method.calls_max, other.calls_max, "{method:?}");
                }
            }
        }
        assert_eq!(by_number(5), None);
    }
}
