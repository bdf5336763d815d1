//! The live page of a node for browsers: its parts, its security policy, and the requests that get it. The page polls
//! the API and nothing else.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The media type of the page.
pub const PAGE_TYPE: &str = "text/html; charset=utf-8";

const STYLE: &str = include_str!("page.css");

/// The script, which is one module. Its files know those before them.
const SCRIPT: [&str; 6] = [
    include_str!("dom.js"),
    include_str!("client.js"),
    include_str!("chart.js"),
    include_str!("node.js"),
    include_str!("key.js"),
    include_str!("main.js"),
];

/// The whole page, in order.
pub static PAGE: [&str; 11] = {
    let [dom, client, chart, node, key, main] = SCRIPT;
    [
        include_str!("head.html"),
        STYLE,
        include_str!("body.html"),
        "<script type=\"module\">",
        dom,
        client,
        chart,
        node,
        key,
        main,
        "</script>\n",
    ]
};

/// The headers of the page, by name.
pub static PAGE_HEADERS: LazyLock<[(&str, String); 4]> = LazyLock::new(|| {
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        source_hash(&SCRIPT),
        source_hash(&[STYLE]),
    );
    [
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff".to_owned()),
        ("Referrer-Policy", "no-referrer".to_owned()),
        ("Vary", "Accept".to_owned()),
    ]
});

/// Returns the hash by which a Content-Security-Policy admits an inline script or style.
fn source_hash(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    format!("sha256-{}", STANDARD.encode(hash.finalize()))
}

/// Whether a header `Accept` prefers HTML to JSON, as those of browsers do (RFC 9110, section 12.5.1).
pub(super) fn prefers_page(accept: &[u8]) -> bool {
    quality(accept, b"text", b"html") > quality(accept, b"application", b"json")
}

/// Returns the quality of a media type, in thousandths: that of the most specific range that has it.
fn quality(accept: &[u8], kind: &[u8], subtype: &[u8]) -> u16 {
    let mut best = (0, 0);
    for range in accept.split(|&byte| byte == b',') {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        let mut names = parts.next().unwrap_or_default().split(|&byte| byte == b'/');
        let (Some(first), Some(second), None) = (names.next(), names.next(), names.next()) else {
            continue;
        };
        let precision = match (first.eq_ignore_ascii_case(kind), second) {
            (true, b"*") => 2,
            (true, second) if second.eq_ignore_ascii_case(subtype) => 3,
            (false, b"*") if first == b"*" => 1,
            _ => continue,
        };
        let weight =
            parts.find_map(|part| part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")));
        best = best.max((precision, weight.map_or(1000, thousandths)));
    }
    best.1
}

/// Returns a quality, such as `0.8`, in thousandths; 0 for a wrong one.
fn thousandths(text: &[u8]) -> u16 {
    let text = core::str::from_utf8(text).unwrap_or_default();
    let number = text.parse::<f32>().unwrap_or_default().clamp(0.0, 1.0);
    (number * 1000.0) as u16
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FIREFOX: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    #[test]
    fn only_clients_that_prefer_html_get_the_page() {
        for (accept, prefers) in [
            (FIREFOX, true),
            ("text/html", true),
            ("TEXT/HTML", true),
            ("text/*", true),
            ("text/html, application/json;q=0.9", true),
            ("application/json;q=0.1 , text/html ;q=0.2", true),
            ("text/html;level=1;q=0.9, */*;q=0.8", true),
            ("", false),
            ("*/*", false),
            ("application/json", false),
            ("application/json, text/html", false),
            ("application/json, text/html;q=0.9", false),
            ("text/html;q=0", false),
            ("text/html;q=0, */*", false),
            ("text/html;q=x", false),
            ("text/html;q=nan", false),
            ("text/plain", false),
            ("html", false),
            ("text/html/x", false),
            ("*/html", false),
            ("\u{ff},;;,/,", false),
        ] {
            assert_eq!(prefers_page(accept.as_bytes()), prefers, "{accept}");
        }
    }

    #[test]
    fn the_policy_admits_the_script_and_the_style_of_the_page_only() {
        let page = PAGE.concat();
        let [(_, policy), ..] = &*PAGE_HEADERS;
        let mut sources = 0;
        for (tag, directive) in [("script", "script-src"), ("style", "style-src")] {
            for start in page.match_indices(&format!("<{tag}")).map(|(start, _)| start) {
                let (_, rest) = page[start..].split_once('>').unwrap();
                let (source, _) = rest.split_once(&format!("</{tag}>")).unwrap();
                let hash = STANDARD.encode(Sha256::digest(source));
                assert!(policy.contains(&format!("{directive} 'sha256-{hash}';")), "{policy}");
                sources += 1;
            }
        }
        assert_eq!(sources, 2);
        // An attribute would need a policy that admits it.
        for attribute in [" style=", " onclick=", " onload=", " onsubmit=", " src="] {
            assert!(!page.contains(attribute), "{attribute}");
        }
        // The namespace of drawings is a name, and no address that is opened.
        let page = page.replace("'http://www.w3.org/2000/svg'", "");
        assert!(!page.contains("http:") && !page.contains("https:"));
    }

    #[test]
    fn the_page_is_small_and_text_only() {
        let page = PAGE.concat();
        assert!(page.len() < 68 << 10, "{}", page.len());
        for sink in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!page.contains(sink), "{sink}");
        }
    }
}
