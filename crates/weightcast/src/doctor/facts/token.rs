//! Looks at the token, as a handle would.

use std::fs;
use std::path::Path;

use weightcast_transport::Secret;

use crate::auth;
use crate::config::Options;
use crate::doctor::judgement::environment::may_be_secret;
use crate::doctor::judgement::server::ServerOrigin;
use crate::doctor::judgement::token::{TokenFacts, TokenOrigin, TokenState};
use crate::private::{FileFault, Keep, fault_of};

/// The token that servers are shown, and what is known of it; `started` is that of the job's own server. `None`: there
/// is no server that could be shown one.
pub(in crate::doctor) fn token(
    options: &Options,
    origin: &ServerOrigin,
    started: Option<Secret>,
) -> Option<(TokenFacts, Option<Secret>)> {
    let servers = origin.servers()?;
    if let (ServerOrigin::Job { job, .. }, Some(token)) = (origin, started) {
        let state = TokenState::Usable(format!("the token of job {job}"));
        return Some((TokenFacts { origin: TokenOrigin::Job, state }, Some(token)));
    }
    let named = options.configured_token_file().is_some();
    let (origin, (state, token)) = match options.token_file_for(servers) {
        Ok(Some(file)) if named => (TokenOrigin::Named, look(&file)),
        Ok(Some(file)) => (TokenOrigin::User, look(&file)),
        Ok(None) => (TokenOrigin::Nowhere, (TokenState::Missing, None)),
        Err(error) => (TokenOrigin::User, (TokenState::Unusable(error.to_string()), None)),
    };
    Some((TokenFacts { origin, state }, token))
}

/// The state of a file, and the token in it.
fn look(file: &Path) -> (TokenState, Option<Secret>) {
    let name = file.display().to_string();
    let found = match fs::metadata(file) {
        Ok(found) => found,
        // What is no file may be the token, which is told to nobody.
        Err(_) if may_be_secret(&name) => return (TokenState::Itself, None),
        Err(error) => return (TokenState::Unusable(format!("{name}: {error}")), None),
    };
    if let Some(FileFault { found, cure }) = fault_of(&found, file, Keep::Secret) {
        return (TokenState::Open { file: name, found, cure }, None);
    }
    match auth::read_token(file) {
        Ok(token) => (TokenState::Usable(name), Some(token)),
        Err(error) => (TokenState::Unusable(error.to_string()), None),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;
    use crate::config::Role;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    /// A fresh file with this content.
    fn file(content: &str, mode: u32) -> PathBuf {
        let name = auth::new_token().unwrap().expose()[..12].escape_ascii().to_string();
        let file = std::env::temp_dir().join(format!("wc-doctor-{name}"));
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_file_is_usable_or_says_why_not() {
        for (content, mode, usable) in
            [(TOKEN, 0o600, true), (TOKEN, 0o644, false), ("short", 0o600, false)]
        {
            let file = file(content, mode);
            let (state, token) = look(&file);
            assert_eq!(token.is_some(), usable, "{state:?}");
            let named = file.display().to_string();
            match state {
                TokenState::Usable(file) => assert!(usable && file == named),
                TokenState::Open { found, cure, .. } => {
                    assert!(mode == 0o644 && found.contains("0644") && cure.contains(&named));
                }
                TokenState::Unusable(why) => assert!(content == "short" && why.contains(&named)),
                other => panic!("{other:?}"),
            }
            fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_token_in_place_of_its_file_is_not_told() {
        assert_eq!(look(Path::new(TOKEN)).0, TokenState::Itself);
        let state = look(Path::new("/no/such/token")).0;
        assert!(matches!(&state, TokenState::Unusable(why) if why.contains("/no/such/token")));
    }

    #[test]
    fn the_token_is_the_one_that_a_handle_would_show() {
        let file = file(TOKEN, 0o600);
        let options = |token_file| Options { token_file, ..Options::new(Role::Rollout) };
        let origin = |server: &str| ServerOrigin::Argument(server.to_owned());
        let told = |options: &Options, server| {
            let (facts, token) = token(options, &origin(server), None).expect("there is a server");
            (facts.origin, token.is_some())
        };
        let given = options(Some(file.clone()));
        assert_eq!(told(&given, "http://192.0.2.1:7"), (TokenOrigin::Named, true));
        assert_eq!(told(&options(None), "http://192.0.2.1:7"), (TokenOrigin::Nowhere, false));
        assert_eq!(told(&options(None), "unix:/s").0, TokenOrigin::User);
        let (job, address) = ("j".to_owned(), "unix:/s".to_owned());
        let started = token(&given, &ServerOrigin::Job { job, address }, Some(Secret::new(TOKEN)));
        assert_eq!(started.map(|(facts, _)| facts.origin), Some(TokenOrigin::Job));
        let nobody = ServerOrigin::Nobody { job: "j".to_owned(), others: Vec::new() };
        assert!(token(&given, &nobody, None).is_none());
        fs::remove_file(file).unwrap();
    }
}
