//! Reader of `ratelimit_zone zone=name:size`.

use super::configuration::ZoneConf;
use super::http::HttpConf;
use super::words::message::ConfError;
use super::words::nginx::Nginx;
use super::words::parameter::{invalid, one_word};
use crate::policy::namespace::valid_name;
use crate::policy::options::shown;

/// The minimum size of a zone in pages.
const MIN_PAGES: usize = 8;

pub(super) fn read(
    nginx: &mut impl Nginx,
    http: &mut HttpConf,
    words: &[&[u8]],
) -> Result<(), ConfError> {
    const EXPECTED: &str = "expected \"zone=name:size\", such as zone=counters:10m";
    refuse_foreign(words)?;
    let word = one_word(words, EXPECTED)?;
    let zone = word.strip_prefix(b"zone=");
    let zone = zone.ok_or_else(|| invalid("parameter", word, EXPECTED))?;
    let mut parts = zone.splitn(2, |&byte| byte == b':');
    let name = valid_name("zone", parts.next().unwrap_or_default())?;
    let size = parts.next().ok_or_else(|| format!("no size in \"{}\": {EXPECTED}", shown(word)))?;
    let size = parse_size(size).ok_or_else(|| {
        format!(
            "invalid size in \"{}\": a size is a number of bytes, or of k, m or g, such as 10m",
            shown(word)
        )
    })?;
    let min_size = nginx.page_size().saturating_mul(MIN_PAGES);
    if size < min_size {
        return Err(format!(
            "zone \"{name}\" is too small: at least {MIN_PAGES} pages, {}k",
            min_size / 1024
        )
        .into());
    }
    if http.zones.iter().any(|known| *known.name == *name) {
        return Err(format!("zone \"{name}\" is duplicate: expected another name").into());
    }
    if nginx.has_zone(name) {
        return Err(format!(
            "zone \"{name}\" is already used by another module: expected another name"
        )
        .into());
    }
    nginx.add_zone(name, size)?;
    http.zones.push(ZoneConf { name: name.into(), size, origin: nginx.origin() });
    Ok(())
}

/// Rejects words that only other modules' zones have: a key (`limit_req_zone`), a rate, `sync`.
fn refuse_foreign(words: &[&[u8]]) -> Result<(), ConfError> {
    let Some(word) = words.iter().find(|word| !word.starts_with(b"zone=")) else {
        return Ok(());
    };
    let instead: String = match *word {
        [b'$', ..] => format!("expected it as \"ratelimit_key {};\"", shown(word)),
        word if word.starts_with(b"rate=") => "expected \"rate=hits/time\" in a rule".into(),
        b"sync" => "expected a namespace with a store".into(),
        _ => return Ok(()),
    };
    let word = shown(word);
    Err(format!(
        "parameter \"{word}\" is of limit_req_zone: {instead}, and \"zone=name:size\" alone here"
    )
    .into())
}

/// Parses a size in bytes as nginx does (`4096`, `64k`, `10m`), and also `1g`.
fn parse_size(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    // The standard library would also accept a sign.
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    let number: usize = core::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_bytes_or_has_a_unit() {
        for (text, size) in [
            ("4096", Some(4096)),
            ("1k", Some(1 << 10)),
            ("10M", Some(10 << 20)),
            ("1g", Some(1 << 30)),
            ("2G", Some(2 << 30)),
            ("", None),
            ("g", None),
            ("1t", None),
            ("1gb", None),
            ("1.5g", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("18014398509481984k", None),
        ] {
            assert_eq!(parse_size(text.as_bytes()), size, "{text}");
        }
    }
}
