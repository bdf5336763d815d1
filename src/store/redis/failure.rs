//! Translates errors of Redis.

use redis::ServerError;

use super::layout;
use crate::store::contract::error::{Failure, Refusal};
use crate::store::contract::options::Credentials;

/// Returns the failure of a server's error, with its words if they contain no user's name or
/// password.
pub(super) fn of(error: &ServerError, credentials: &Credentials) -> Failure {
    let details = error.details().unwrap_or_default();
    let code = code(error.code(), details);
    let words = || {
        let words = told(&format!("{} {details}", error.code()), credentials);
        words.map_or(code.into(), |words| words.trim_end().into())
    };
    match code {
        "LAYOUT" => {
            layout::mismatch(details).unwrap_or_else(|| Failure::Failed(words()))
        }
        "READONLY" => Failure::Refused(Refusal::ReadOnly),
        "MASTERDOWN" => Failure::Refused(Refusal::PrimaryDown),
        "LOADING" => Failure::Refused(Refusal::Loading),
        "OOM" => Failure::Refused(Refusal::OutOfMemory),
        "MOVED" | "ASK" => Failure::Refused(Refusal::Moved(words())),
        "BUSY" | "CLUSTERDOWN" | "MISCONF" | "NOREPLICAS" | "NOSCRIPT" | "TRYAGAIN"
        // Returned for a blocking read when the server becomes a replica.
        | "UNBLOCKED" => {
            Failure::Refused(Refusal::Other(code.into()))
        }
        "NOAUTH" | "NOPERM" | "WRONGPASS" => Failure::Denied(words()),
        _ => Failure::Failed(words()),
    }
}

/// Returns the code of an error. Redis before 7.0 hides the code of an error in a script: `ERR
/// Error running script (...): @user_script:5: @user_script: 5: -READONLY You can't write ...`.
fn code<'a>(outer: &'a str, details: &'a str) -> &'a str {
    let is_code =
        |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase());
    let mut words = details.split(' ');
    let mut inner = || words.find_map(|word| word.strip_prefix('-').filter(is_code));
    match outer {
        "ERR" => inner().unwrap_or(outer),
        _ => outer,
    }
}

/// Returns the server's words with the user's name replaced; `None` if they may contain a
/// credential.
fn told(words: &str, credentials: &Credentials) -> Option<String> {
    credentials.taken_out_of(words, |name| format!("User {name} "), "the user ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::options::Secret;

    #[test]
    fn an_error_within_a_script_has_a_code_of_its_own() {
        for (outer, details, expected) in [
            ("READONLY", "You can't write against a read only replica.", "READONLY"),
            (
                "ERR",
                "Error running script (call to f_5c0): @user_script:70: @user_script: 70: \
                 -READONLY You can't write against a read only replica.",
                "READONLY",
            ),
            (
                "ERR",
                "Error running script (call to f_5c0): @user_script:70: @user_script: 70: \
                 -OOM command not allowed when used memory > 'maxmemory'.",
                "OOM",
            ),
            ("ERR", "unknown command 'EVALSHA' - try another", "ERR"),
            ("ERR", "", "ERR"),
        ] {
            assert_eq!(code(outer, details), expected, "{details}");
        }
    }

    #[test]
    fn no_words_with_a_name_or_a_password_are_kept() {
        let secret = |text: &str| Secret::parse(text.as_bytes());
        for (words, expected) in [
            (
                "NOPERM User alice has no permissions to run the 'get' command",
                Some("NOPERM the user has no permissions to run the 'get' command"),
            ),
            ("NOPERM alice may not", None),
            ("ERR hunter2", None),
            (
                "NOPERM No permissions to access a key",
                Some("NOPERM No permissions to access a key"),
            ),
        ] {
            let credentials =
                Credentials { username: secret("alice"), password: secret("hunter2") };
            assert_eq!(told(words, &credentials).as_deref(), expected);
        }
    }
}
