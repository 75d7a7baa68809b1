//! Whether other hosts can reach an address, as far as its text says.

use crate::config::is_of_this_host;

/// What to set where a data port has the wrong address.
const REMEDY: &str = "set WEIGHTCAST_DATA_BIND (or data_bind of open) there to an address that the \
                      other hosts reach, such as 10.0.0.2:0";

/// Why other hosts cannot reach a data port, although they reach the server.
pub(crate) fn unreachable(servers: &str, data_address: &str) -> Option<String> {
    let shared = !servers.split(',').all(is_of_this_host);
    (shared && is_of_this_host(data_address)).then(|| {
        format!(
            "the server {servers} can be reached from other hosts, this worker's data port \
             {data_address} cannot: nobody there can read from it"
        )
    })
}

/// The warning of `open` about a data port that other hosts cannot reach, although they reach the
/// server.
pub(in crate::client) fn warning(servers: &str, data_address: &str) -> Option<String> {
    unreachable(servers, data_address).map(|why| format!("{why}; {REMEDY}"))
}

/// The error of a reader that does not reach a source, explained if the source names loopback.
pub(in crate::client) fn explained(address: &str, error: String) -> String {
    match is_of_this_host(address) {
        true => format!(
            "{error}; {address} is loopback, which is another one on every host: if the source runs on \
             another host, {REMEDY}"
        ),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_this_host_alone_beside_a_server_for_all() {
        let told = |servers, data| warning(servers, data).is_some();
        let local =
            ["http://127.0.0.1:7700", "localhost:7700", "unix:/run/x.sock", "http://[::1]:1/"];
        for server in local {
            assert!(!told(server, "127.0.0.1:9"), "{server}");
        }
        for server in ["http://10.0.0.1:7700", "trainer-0:7700", "127.0.0.1:1, http://10.0.0.2:1"] {
            assert!(told(server, "127.0.0.1:9") && told(server, "[::1]:9"), "{server}");
            assert!(!told(server, "10.0.0.2:9") && !told(server, "host-2:9"), "{server}");
        }
        assert!(
            warning("http://10.0.0.1:7700", "127.0.0.1:9")
                .unwrap()
                .contains("WEIGHTCAST_DATA_BIND")
        );
    }

    #[test]
    fn a_source_that_said_loopback_is_told_apart_from_one_that_is_gone() {
        let said = explained("127.0.0.1:9", "refused".to_owned());
        assert!(said.starts_with("refused; 127.0.0.1:9") && said.contains("WEIGHTCAST_DATA_BIND"));
        assert_eq!(explained("10.0.0.2:9", "refused".to_owned()), "refused");
    }
}
