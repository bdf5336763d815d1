//! Whole conversions of nginx.conf, of valid texts and of broken ones.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{NginxInput, convert};
use crate::convert::{Conversion, ConvertError, InputFiles};

/// Files in memory, by name.
struct Texts(BTreeMap<PathBuf, Vec<u8>>);

impl Texts {
    fn new(files: &[(&str, &[u8])]) -> Texts {
        Texts(
            files.iter().map(|(name, text)| (Path::new("/e").join(name), text.to_vec())).collect(),
        )
    }
}

impl InputFiles for Texts {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn expand(&self, pattern: &Path) -> io::Result<Vec<PathBuf>> {
        let start = pattern.parent().unwrap();
        Ok(self.0.keys().filter(|path| path.parent() == Some(start)).cloned().collect())
    }
}

fn convert_files(files: &[(&str, &[u8])]) -> Result<Conversion, ConvertError> {
    let main = Path::new("/e").join(files[0].0);
    let input = NginxInput {
        main: &main,
        directory: Path::new("/e"),
        may_miss_includes: false,
        is_moved: true,
    };
    convert(&Texts::new(files), &input)
}

fn convert_text(text: &[u8]) -> Result<Conversion, ConvertError> {
    convert_files(&[("nginx.conf", text)])
}

/// Returns the only file of a conversion, without the remarks' lines.
fn without_remarks(conversion: &Conversion) -> String {
    let text = String::from_utf8(conversion.files[0].text.clone()).unwrap();
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.trim_start().starts_with("# ratelimit-convert:")).collect()
}

const WHOLE: &str = r#"# ä comment
user  nobody;
events {}
http {
    limit_req_zone  $binary_remote_addr zone=one:10m rate=10r/s; # per client
    limit_req_zone "$server_name $uri" zone=two:512k rate=30r/m;
    log_format x '$status "${limit_req_status}" $limit_req_statuses';
    limit_req_status 429;
    server {
        limit_req_log_level warn;
        limit_req zone=one
            # comment; of the burst
            burst=20 nodelay;
        location / { limit_req zone=two burst=5; limit_req zone=one burst=3 delay=2; root /a; }
        location /dry { limit_req_dry_run on; return 200 'limit_req zone=x;'; }
    }
}
"#;

/// The blocks of a whole nginx.conf may all be in included files.
#[test]
fn loads_the_module_in_the_main_file() {
    let zone: &[u8] =
        b"http { limit_req_zone $k zone=a:1m rate=1r/s; server { limit_req zone=a; } }";
    let conversion = convert_files(&[
        ("nginx.conf", b"include ev; include web;"),
        ("ev", b"events {}"),
        ("web", zone),
    ]);
    let files = conversion.unwrap().files;
    let has_load = |index: usize| files[index].text.starts_with(b"load_module");
    assert_eq!([0, 1, 2].map(has_load), [true, false, false]);
    assert_eq!(files[0].path, Path::new("/e/nginx.conf"));
}

const CONVERTED: &str = r#"load_module modules/ngx_http_rate_limiting_module.so;
# ä comment
user  nobody;
events {}
http {
    ratelimit_zone zone=counters:10752k;
    ratelimit_headers off;
    log_format x '$status "${ratelimit_status}" $limit_req_statuses';
    ratelimit_status 429;
    server {
        ratelimit_log_level warn;
        # comment; of the burst
        ratelimit rate=10/1s burst=20 counter=one;
        location / { ratelimit rate=30/1m burst=5 delay=all "key=$server_name $uri" counter=two; ratelimit rate=10/1s burst=3 delay=2 counter=one; root /a; }
        location /dry { ratelimit_dry_run on; return 200 'limit_req zone=x;'; }
    }
}
"#;

#[test]
fn replaces_the_directives_of_limit_req_and_nothing_else() {
    let conversion = convert_text(WHOLE.as_bytes()).unwrap();
    let text = without_remarks(&conversion);
    assert_eq!(text, CONVERTED);
    assert!(conversion.files[0].is_changed);
    assert!(conversion.remarks.iter().all(|remark| !remark.is_work));
}

#[test]
fn says_what_differs() {
    let of_level = |text: &str, level: &str| {
        let text = format!(
            "http {{ limit_req_zone $k zone=a:1m; {text} server {{ limit_req zone=a; {level} }} }}"
        );
        let conversion = convert_text(text.as_bytes()).expect(&text);
        let remarks = conversion.remarks.iter();
        let remarks: Vec<_> = remarks.map(|remark| (remark.text.clone(), remark.is_work)).collect();
        let text = String::from_utf8(conversion.files[0].text.clone()).unwrap();
        // Each remark is in the text, too, unless a line there had it already.
        assert!(remarks.iter().all(|(remark, _)| text.contains(remark.as_str())), "{text}");
        (text, remarks)
    };
    for (http, level, remark, is_work) in [
        ("", "", "limit_req answers 503", false),
        ("", "", "limit_req sends no headers", false),
        ("", "limit_req_log_level info;", "delays are logged at debug", false),
        ("limit_conn_zone $k zone=b:1m;", "limit_conn b 1;", "limit_conn stays", false),
        ("limit_req_zone $k zone=b:1m;", "limit_req zone=b;", "of 2 zones", false),
        ("limit_req_zone $k zone=b:1m;", "limit_req zone=b;", "are in zone \"counters\"", false),
        ("limit_req_zone $k zone=unused:1m;", "", "\"unused\" stays", true),
        ("limit_req_zone $k zone=b:1m sync;", "limit_req zone=b;", "shared by zone_sync", true),
        ("", "x_by_lua_block { ngx.var.limit_req_status }", "this Lua reads", true),
        ("", "limit_req_dry_run ON;", "limit_req sends no headers", false),
        ("", "x_by_lua 'return ngx.var.limit_req_status';", "this Lua reads", true),
    ] {
        let (text, remarks) = of_level(http, level);
        let found = remarks.iter().find(|(text, _)| text.contains(remark));
        assert_eq!(found.map(|(_, is_work)| *is_work), Some(is_work), "{remark}: {text}");
    }
    let (text, _) =
        of_level("limit_conn_zone $k zone=b:1m;", "limit_conn b 1; limit_conn_status 429;");
    assert_eq!(text.matches("limit_conn stays").count(), 1, "{text}");
    assert!(text.contains("limit_conn b 1; limit_conn_status 429;"), "{text}");
    assert!(text.contains("ratelimit_status 503;"), "{text}");
    let (text, _) = of_level("limit_req_status 429;", "");
    assert!(!text.contains("ratelimit_status 503;"), "{text}");
    let (text, _) = of_level("", "limit_req_status 429;");
    assert!(
        text.contains("ratelimit_status 503;") && text.contains("ratelimit_status 429;"),
        "{text}"
    );
}

#[test]
fn follows_includes() {
    let conversion = convert_files(&[
        ("nginx.conf", b"events {} http { include conf.d/*; server { include limit; } }"),
        ("conf.d/zone.conf", b"limit_req_zone $k zone=a:1m;\n"),
        ("conf.d/other.conf", b"gzip on;\n"),
        ("limit", b"limit_req zone=a;\n"),
    ])
    .unwrap();
    let changed = conversion.files.iter().filter(|file| file.is_changed);
    let names: Vec<_> = changed.map(|file| file.path.to_str().unwrap()).collect();
    assert_eq!(names, ["/e/nginx.conf", "/e/conf.d/zone.conf", "/e/limit"]);
    assert_eq!(conversion.files[3].text, b"ratelimit rate=1/1s key=$k counter=a;\n");

    let enabled = convert_text(
        b"include /x/modules-enabled/*.conf;\nhttp { limit_req_zone $k zone=a:1m; limit_req zone=a; }",
    );
    let text = String::from_utf8(enabled.unwrap().files[0].text.clone()).unwrap();
    assert!(text.starts_with("# ratelimit-convert: unless a file here loads the module"), "{text}");
}

#[test]
fn leaves_other_contexts_alone() {
    for text in [
        "stream { server { limit_conn a 1; } }",
        "http { map $a $b { limit_req 1; limit_conn 2; } }",
        "http { server { } }",
        "",
        "# limit_req zone=a;",
    ] {
        let error = convert_text(text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/e/nginx.conf: nothing to convert: no limit_req and no limit_conn"
        );
    }
}

#[test]
fn refuses_with_file_and_line() {
    for (files, message) in [
        (
            &[("nginx.conf", "http {\n limit_req zone=a;\n}")][..],
            "/e/nginx.conf:2: limit_req: zone \"a\" has no",
        ),
        (
            &[("nginx.conf", "limit_req_zone $k zone=a:1m rate=x;")],
            "/e/nginx.conf:1: limit_req_zone: invalid rate",
        ),
        (
            &[("nginx.conf", "limit_req_zone $k zone=a:1m;limit_req_zone $j zone=a:1m;")],
            "defined before",
        ),
        (
            &[("nginx.conf", "limit_req_zone $k zone=a:1m;limit_req zone=a;limit_req zone=a;")],
            "is duplicate",
        ),
        (
            &[("nginx.conf", "limit_req_status 403;")],
            "/e/nginx.conf:1: limit_req_status: no limit_req in these",
        ),
        (&[("nginx.conf", "\ninclude no;")], "/e/nginx.conf:2: include: \"/e/no\" cannot be read"),
        (
            &[("nginx.conf", "include a;"), ("a", "\ninclude nginx.conf;")],
            "/e/a:2: include: \"/e/nginx.conf\" includes itself",
        ),
        (&[("nginx.conf", "include a;"), ("a", "b {\n")], "/e/a:2: unexpected end of file"),
        (
            &[("nginx.conf", "ratelimit_zone zone=a:1m;")],
            "/e/nginx.conf:1: \"ratelimit_zone\" is of this module",
        ),
    ] {
        let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        let error = convert_files(&files).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Includes that double with each level would take forever if each was followed.
#[test]
fn follows_each_include_once() {
    let names: Vec<_> = (0..40).map(|number| format!("f{number}")).collect();
    let texts: Vec<_> = (1..=40)
        .map(|next| match next {
            40 => "limit_req_zone $k zone=a:1m; limit_req zone=a;".to_owned(),
            _ => format!("include f{next}; include f{next};"),
        })
        .collect();
    let files: Vec<_> =
        names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    assert_eq!(convert_files(&files).unwrap().files.len(), 40);
}

#[test]
fn survives_truncation_at_each_byte() {
    for end in 0..WHOLE.len() {
        let text = WHOLE.as_bytes().get(..end).unwrap();
        let result = convert_text(text);
        // Only behind the last brace is it complete.
        assert_eq!(result.is_ok(), end >= WHOLE.trim_end().len(), "{end}");
    }
}

/// Bytes that are no UTF-8 stay, wherever they are; no change of a byte ends in a panic.
#[test]
fn survives_any_byte_anywhere() {
    for at in 0..WHOLE.len() {
        for byte in [0, b'\n', b'"', b'#', b'$', b'\\', b'{', b'}', b';', 0x80, 0xff] {
            let mut text = WHOLE.as_bytes().to_vec();
            text[at] = byte;
            if let Ok(conversion) = convert_text(&text) {
                let unchanged = |text: &[u8]| text.iter().filter(|byte| **byte >= 0x80).count();
                assert!(unchanged(&conversion.files[0].text) >= unchanged(&text), "{at} {byte}");
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn survives_any_text(parts in proptest::collection::vec(
        proptest::sample::select(vec![
            "limit_req ", "limit_req_zone ", "zone=a", "zone=a:1m", "rate=1r/s ", "burst=2 ", ";", " ", "{", "}",
            "\"", "'", "\\", "#", "\n", "$", "${", "$limit_req_status", "http", "server", "limit_conn a 1;", "\u{e4}",
            "include x;", "a_by_lua_block {", "[[", "]]", "--",
        ]),
        0..40,
    )) {
        let text = parts.concat();
        let _ = convert_text(text.as_bytes());
    }
}
