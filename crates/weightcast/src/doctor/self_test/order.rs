//! What the two processes of the self-test say to each other: lines of words.

use std::net::SocketAddr;

use weightcast_transport::{Digest, Secret, Way};

/// The generation at which the memory is served.
pub(super) const GENERATION: u64 = 1;
/// The ways that are tried, in the order of their trials.
pub(super) const WAYS: [Way; 3] = [Way::Direct, Way::Tcp, Way::Shared];
/// In the place of an export that there is not.
const NONE: &str = "none";

/// What to read.
#[derive(Clone, Debug)]
pub(super) struct SelfTestOrder {
    pub(super) address: SocketAddr,
    pub(super) token: Secret,
    pub(super) export: u64,
    /// The same bytes in shared memory, if there is any.
    pub(super) shared: Option<u64>,
    pub(super) bytes: u64,
}

impl SelfTestOrder {
    pub(super) fn line(&self) -> String {
        let token = String::from_utf8_lossy(self.token.expose());
        let shared = self.shared.map_or(NONE.to_owned(), |export| export.to_string());
        format!("{} {token} {} {shared} {}", self.address, self.export, self.bytes)
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let [address, token, export, shared, bytes] =
            <[&str; 5]>::try_from(line.split_ascii_whitespace().collect::<Vec<_>>()).ok()?;
        Some(Self {
            address: address.parse().ok()?,
            token: Secret::new(token),
            export: export.parse().ok()?,
            shared: if shared == NONE { None } else { Some(shared.parse().ok()?) },
            bytes: bytes.parse().ok()?,
        })
    }
}

/// How one way went.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum WayReport {
    /// One read, the median of a few; and the digest of what arrived.
    Read {
        seconds: f64,
        digest: Digest,
    },
    Failed(String),
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Shared => "shared",
        Way::Direct => "direct",
        _ => "tcp",
    }
}

impl WayReport {
    pub(super) fn line(&self, way: Way) -> String {
        let way = name(way);
        match self {
            Self::Read { seconds, digest: Digest([low, high]) } => {
                format!("{way} read {seconds} {low} {high}")
            }
            Self::Failed(why) => format!("{way} failed {}", why.replace(char::is_control, " ")),
        }
    }

    /// The report on a way, among all lines.
    pub(super) fn find(way: Way, text: &str) -> Option<Self> {
        let after = |line: &'_ str| -> Option<Self> {
            let said = line.strip_prefix(name(way))?.strip_prefix(' ')?;
            if let Some(why) = said.strip_prefix("failed ") {
                return Some(Self::Failed(why.to_owned()));
            }
            let mut words = said.strip_prefix("read ")?.split(' ');
            let mut word = || words.next();
            let seconds = word()?.parse().ok()?;
            let digest = Digest([word()?.parse().ok()?, word()?.parse().ok()?]);
            Some(Self::Read { seconds, digest })
        };
        text.lines().find_map(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_understood_as_it_was_given() {
        for (address, shared) in [("10.0.0.1:7", None), ("[::1]:9", Some(u64::MAX - 1))] {
            let address = address.parse().unwrap();
            let token = Secret::new("t".repeat(32));
            let order = SelfTestOrder { address, token, export: u64::MAX, shared, bytes: 3 };
            let heard = SelfTestOrder::parse(&order.line()).unwrap();
            assert_eq!((heard.address, heard.export, heard.bytes), (address, u64::MAX, 3));
            assert_eq!(heard.shared, shared);
            assert_eq!(heard.token.expose(), order.token.expose());
        }
        for line in [
            "",
            "10.0.0.1:7 t 1 2",
            "10.0.0.1:7 t 1 2 3 4",
            "host:7 t 1 none 2",
            "10.0.0.1:7 t x none 2",
            "10.0.0.1:7 t 1 x 2",
        ] {
            assert!(SelfTestOrder::parse(line).is_none(), "{line}");
        }
    }

    #[test]
    fn a_report_is_understood_as_it_was_given() {
        let read = WayReport::Read { seconds: 0.125, digest: Digest([u64::MAX, 7]) };
        let failed = WayReport::Failed("no: two\nlines".to_owned());
        let fast = WayReport::Read { seconds: 0.25, digest: Digest([1, 2]) };
        let lines = [read.line(Way::Direct), failed.line(Way::Tcp), fast.line(Way::Shared)];
        let text = lines.join("\n");
        assert_eq!(WayReport::find(Way::Shared, &text), Some(fast));
        assert_eq!(WayReport::find(Way::Direct, &text), Some(read));
        assert_eq!(
            WayReport::find(Way::Tcp, &text),
            Some(WayReport::Failed("no: two lines".to_owned()))
        );
        for text in
            ["", "tcp", "tcp read 1 2", "tcp read x 1 2", "direct read 1 2 3", "tcpread 1 2 3"]
        {
            assert_eq!(WayReport::find(Way::Tcp, text), None, "{text}");
        }
    }
}
