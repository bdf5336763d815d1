//! Protection against cross-site requests: a page of another site must not write.

/// The headers by which a browser identifies the page that sends a request. Other programs do not send them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender<'r> {
    /// The header `Host`: the host, with its port unless that is the default.
    pub host: &'r [u8],
    /// The header `Origin`.
    pub origin: Option<&'r [u8]>,
    /// The header `Sec-Fetch-Site`.
    pub fetch_site: Option<&'r [u8]>,
}

impl Sender<'_> {
    /// Whether a browser sends the request for a page of another site. `Origin: null` and `Sec-Fetch-Site: same-site`
    /// count as another site.
    pub fn is_another_site(&self) -> bool {
        let is_elsewhere = |site: &[u8]| {
            !site.eq_ignore_ascii_case(b"same-origin") && !site.eq_ignore_ascii_case(b"none")
        };
        self.fetch_site.is_some_and(is_elsewhere)
            || self.origin.is_some_and(|origin| !self.is_of_host(origin))
    }

    /// Whether an origin, such as `https://example.com:8443`, is of this host.
    fn is_of_host(&self, origin: &[u8]) -> bool {
        let (authority, port) = if let Some(authority) = origin.strip_prefix(b"https://") {
            (authority, &b":443"[..])
        } else if let Some(authority) = origin.strip_prefix(b"http://") {
            (authority, &b":80"[..])
        } else {
            return false;
        };
        // The default port may be left out.
        let host = self.host.strip_suffix(port).unwrap_or(self.host);
        let authority = authority.strip_suffix(port).unwrap_or(authority);
        !authority.is_empty() && authority.eq_ignore_ascii_case(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_another_site_is_recognized_by_its_headers() {
        for (host, origin, fetch_site, is_another) in [
            ("a.example", "", "", false),
            ("a.example", "http://a.example", "", false),
            ("A.example:80", "http://a.Example", "", false),
            ("a.example", "https://a.example:443", "", false),
            ("a.example:8080", "http://a.example:8080", "", false),
            ("[::1]:8080", "http://[::1]:8080", "", false),
            ("a.example", "", "same-origin", false),
            ("a.example", "", "none", false),
            ("a.example", "http://a.example", "same-origin", false),
            ("a.example", "http://b.example", "", true),
            ("a.example", "http://a.example.b", "", true),
            ("a.example", "http://b.a.example", "", true),
            ("a.example:8080", "http://a.example:8081", "", true),
            ("a.example:80", "https://a.example", "", true),
            ("a.example", "ftp://a.example", "", true),
            ("a.example", "null", "", true),
            ("", "http://", "", true),
            ("a.example", "a.example", "", true),
            ("a.example", "", "cross-site", true),
            ("a.example", "", "same-site", true),
            ("a.example", "", "Cross-Site", true),
            ("a.example", "http://a.example", "same-site", true),
            ("a.example", "http://b.example", "same-origin", true),
        ] {
            let sender = Sender {
                host: host.as_bytes(),
                origin: Some(origin.as_bytes()).filter(|it| !it.is_empty()),
                fetch_site: Some(fetch_site.as_bytes()).filter(|it| !it.is_empty()),
            };
            assert_eq!(sender.is_another_site(), is_another, "{sender:?}");
        }
    }
}
