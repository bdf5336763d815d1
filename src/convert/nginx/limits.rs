//! The words of `limit_req_zone` and `limit_req`, parsed as nginx parses them.

/// The largest number of hits in a rule.
const MAX_HITS: u64 = 140_737_488_355;

/// A `limit_req_zone`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitReqZone {
    /// Its name.
    pub(super) name: Vec<u8>,
    /// Its key: text and variables.
    pub(super) key: Vec<u8>,
    /// Its size in bytes.
    pub(super) size: u64,
    /// Requests in a time.
    pub(super) rate: u64,
    /// The time: a minute, or else a second.
    pub(super) is_per_minute: bool,
    /// Whether nodes share it (`sync`, of NGINX Plus).
    pub(super) is_synced: bool,
}

impl LimitReqZone {
    /// Parses the words after `limit_req_zone`.
    pub(super) fn parse<'w>(
        mut words: impl Iterator<Item = &'w [u8]>,
    ) -> Result<LimitReqZone, String> {
        let key = words.next().ok_or("a key is missing")?;
        let mut zone = LimitReqZone {
            name: Vec::new(),
            key: key.to_vec(),
            size: 0,
            rate: 1,
            is_per_minute: false,
            is_synced: false,
        };
        for word in words {
            if let Some(value) = word.strip_prefix(b"zone=") {
                let mut parts = value.splitn(2, |byte| *byte == b':');
                zone.name = parts.next().unwrap_or_default().to_vec();
                zone.size =
                    parts.next().and_then(size).ok_or_else(|| invalid("zone size", word))?;
            } else if let Some(value) = word.strip_prefix(b"rate=") {
                let (number, is_per_minute) = match value {
                    [number @ .., b'r', b'/', b'm'] => (number, true),
                    [number @ .., b'r', b'/', b's'] => (number, false),
                    number => (number, zone.is_per_minute),
                };
                zone.rate = hits(number).ok_or_else(|| invalid("rate", word))?;
                zone.is_per_minute = is_per_minute;
            } else if word == b"sync" {
                zone.is_synced = true;
            } else {
                return Err(invalid("parameter", word));
            }
        }
        match zone.name.is_empty() {
            true => Err("\"zone=name:size\" is missing".into()),
            false => Ok(zone),
        }
    }

    /// Returns the key of our rules; `None` if it is the default one.
    pub(super) fn rule_key(&self) -> Option<&[u8]> {
        match self.key.as_slice() {
            b"$binary_remote_addr"
            | b"${binary_remote_addr}"
            | b"$remote_addr"
            | b"${remote_addr}" => None,
            key => Some(key),
        }
    }
}

/// A `limit_req`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitReq {
    /// The name of its zone.
    pub(super) zone: Vec<u8>,
    /// The burst; 0 without one.
    pub(super) burst: u64,
    /// The part of the burst that does not wait; `None` for `nodelay`.
    pub(super) delay: Option<u64>,
}

impl LimitReq {
    /// Parses the words after `limit_req`.
    pub(super) fn parse<'w>(words: impl Iterator<Item = &'w [u8]>) -> Result<LimitReq, String> {
        let mut limit = LimitReq { zone: Vec::new(), burst: 0, delay: Some(0) };
        for word in words {
            if let Some(value) = word.strip_prefix(b"zone=") {
                limit.zone = value.to_vec();
            } else if let Some(value) = word.strip_prefix(b"burst=") {
                limit.burst = hits(value).ok_or_else(|| invalid("burst value", word))?;
            } else if let Some(value) = word.strip_prefix(b"delay=") {
                limit.delay = Some(hits(value).ok_or_else(|| invalid("delay value", word))?);
            } else if word == b"nodelay" {
                limit.delay = None;
            } else {
                return Err(invalid("parameter", word));
            }
        }
        match limit.zone.is_empty() {
            true => Err("\"zone=name\" is missing".into()),
            false => Ok(limit),
        }
    }

    /// Returns the words of our rule, without key and counter.
    pub(super) fn rule(&self, zone: &LimitReqZone) -> String {
        let time = if zone.is_per_minute { "1m" } else { "1s" };
        let mut rule = format!("ratelimit rate={}/{time}", zone.rate);
        if self.burst > 0 {
            rule.push_str(&format!(" burst={}", self.burst));
            match self.delay {
                // At most the whole burst is early, so that no request waits.
                Some(delay) if delay >= self.burst => {}
                Some(0) => rule.push_str(" delay=all"),
                Some(delay) => rule.push_str(&format!(" delay={delay}")),
                None => {}
            }
        }
        rule
    }
}

fn invalid(what: &str, word: &[u8]) -> String {
    format!("invalid {what} \"{}\"", word.escape_ascii())
}

/// Parses a number as `ngx_atoi` does.
fn number(text: &[u8]) -> Option<u64> {
    let digits = core::str::from_utf8(text).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Parses a number of requests, which is at least 1.
fn hits(text: &[u8]) -> Option<u64> {
    number(text).filter(|hits| (1..=MAX_HITS).contains(hits))
}

/// Parses a size as `ngx_parse_size` does.
fn size(text: &[u8]) -> Option<u64> {
    let (text, unit) = match text {
        [text @ .., b'k' | b'K'] => (text, 1 << 10),
        [text @ .., b'm' | b'M'] => (text, 1 << 20),
        text => (text, 1),
    };
    number(text)?.checked_mul(unit).filter(|size| *size <= i64::MAX.unsigned_abs())
}

/// Writes a size with the largest unit that divides it.
pub(super) fn written_size(bytes: u64) -> String {
    match bytes.trailing_zeros() {
        _ if bytes == 0 => "0".into(),
        20.. => format!("{}m", bytes >> 20),
        10.. => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> impl Iterator<Item = &[u8]> {
        text.split_whitespace().map(str::as_bytes)
    }

    #[test]
    fn writes_rules() {
        for (zone, limit, expected) in [
            ("rate=10r/s", "zone=a", "rate=10/1s"),
            ("", "zone=a", "rate=1/1s"),
            ("rate=7", "zone=a", "rate=7/1s"),
            ("rate=30r/m rate=7", "zone=a", "rate=7/1m"),
            ("rate=30r/m", "zone=a nodelay", "rate=30/1m"),
            ("rate=10r/s", "zone=a burst=20", "rate=10/1s burst=20 delay=all"),
            ("rate=10r/s", "burst=20 nodelay zone=a", "rate=10/1s burst=20"),
            ("rate=10r/s", "zone=a burst=20 delay=8", "rate=10/1s burst=20 delay=8"),
            ("rate=10r/s", "zone=a burst=20 delay=20", "rate=10/1s burst=20"),
            ("rate=10r/s", "zone=a burst=20 nodelay delay=8", "rate=10/1s burst=20 delay=8"),
            ("rate=10r/s", "zone=a burst=20 delay=8 nodelay", "rate=10/1s burst=20"),
            ("rate=10r/s", "zone=a delay=8", "rate=10/1s"),
        ] {
            let zone_words = format!("$k zone=a:1m {zone}");
            let zone = LimitReqZone::parse(words(&zone_words)).unwrap();
            let limit = LimitReq::parse(words(limit)).unwrap();
            assert_eq!(limit.rule(&zone), format!("ratelimit {expected}"));
        }
    }

    #[test]
    fn refuses_what_nginx_refuses() {
        for (text, message) in [
            ("", "a key is missing"),
            ("$k", "\"zone=name:size\" is missing"),
            ("$k zone=a", "invalid zone size \"zone=a\""),
            ("$k zone=a:1g", "invalid zone size \"zone=a:1g\""),
            ("$k zone=a:99999999999999m", "invalid zone size"),
            ("$k zone=a:1m rate=0r/s", "invalid rate \"rate=0r/s\""),
            ("$k zone=a:1m rate=1r/h", "invalid rate"),
            ("$k zone=a:1m rate=99999999999999999999r/s", "invalid rate"),
            ("$k zone=a:1m x", "invalid parameter \"x\""),
        ] {
            let error = LimitReqZone::parse(words(text)).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        for (text, message) in [
            ("", "\"zone=name\" is missing"),
            ("zone=a burst=0", "invalid burst value \"burst=0\""),
            ("zone=a burst=-1", "invalid burst value"),
            ("zone=a delay=x", "invalid delay value \"delay=x\""),
            ("zone=a nodelays", "invalid parameter \"nodelays\""),
        ] {
            let error = LimitReq::parse(words(text)).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn writes_sizes() {
        for (bytes, expected) in
            [(10 << 20, "10m"), (3 << 19, "1536k"), (32_768, "32k"), (40_001, "40001")]
        {
            assert_eq!(written_size(bytes), expected);
        }
    }
}
