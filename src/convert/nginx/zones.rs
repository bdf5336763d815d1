//! The zones of `limit_req` that are converted: their names and counters, and the zone that replaces all of them.

use std::collections::{HashMap, HashSet};

use super::files::{NginxFile, NginxFiles};
use super::lexer::NginxDirective;
use super::limits::{LimitReq, LimitReqZone, written_size};
use crate::convert::ConvertError;
use crate::convert::written::UniqueNames;

/// A zone with the counter of its rules.
#[derive(Debug)]
pub(super) struct ConvertedZone {
    pub(super) zone: LimitReqZone,
    /// The name for `counter=`.
    pub(super) counter: String,
    /// Whether a `limit_req` names it. If none does, it stays.
    pub(super) is_used: bool,
}

/// The zones of a configuration.
#[derive(Debug)]
pub(super) struct ConvertedZones {
    zones: HashMap<Vec<u8>, ConvertedZone>,
    /// The name of the zone that replaces all of them.
    pub(super) name: String,
    /// Its size, as written.
    pub(super) size: String,
    /// The number of zones that it replaces.
    pub(super) count: usize,
}

impl ConvertedZones {
    /// Reads each `limit_req_zone`, and finds those that a `limit_req` names.
    pub(super) fn find(all: &NginxFiles) -> Result<ConvertedZones, ConvertError> {
        let mut zones = HashMap::new();
        let mut counters = UniqueNames::default();
        for (file, directive) in named(all, b"limit_req_zone") {
            let zone = LimitReqZone::parse(directive.parameters());
            let zone = zone.map_err(|message| error(file, directive, &message))?;
            let counter = counters.valid(&zone.name);
            let name = zone.name.clone();
            let converted = ConvertedZone { zone, counter, is_used: false };
            if zones.insert(name, converted).is_some() {
                return Err(error(file, directive, "a zone of this name was defined before"));
            }
        }
        let mut on_level = HashSet::new();
        for (file, directive) in named(all, b"limit_req") {
            let limit = LimitReq::parse(directive.parameters());
            let limit = limit.map_err(|message| error(file, directive, &message))?;
            let Some(zone) = zones.get_mut(&limit.zone) else {
                let message = format!(
                    "zone \"{}\" has no limit_req_zone in these files: convert the nginx.conf that includes both",
                    limit.zone.escape_ascii()
                );
                return Err(error(file, directive, &message));
            };
            zone.is_used = true;
            if !on_level.insert((&file.path, directive.parent, limit.zone)) {
                return Err(error(file, directive, "is duplicate: the level has this zone"));
            }
        }
        if on_level.is_empty() {
            refuse_without_rules(all)?;
        }
        let used: Vec<_> = zones.values().filter(|zone| zone.is_used).collect();
        let size = used.iter().fold(0_u64, |sum, zone| sum.saturating_add(zone.zone.size));
        let name = match used.as_slice() {
            [only] => only.counter.clone(),
            _ => unused_name(all, "counters"),
        };
        let (size, count) = (written_size(size), used.len());
        Ok(ConvertedZones { zones, name, size, count })
    }

    /// Returns a zone.
    pub(super) fn get(&self, name: &[u8]) -> Option<&ConvertedZone> {
        self.zones.get(name)
    }
}

/// Refuses files with parts of a `limit_req` that is elsewhere, where these parts are still needed.
fn refuse_without_rules(all: &NginxFiles) -> Result<(), ConvertError> {
    let mut directives = all.in_http();
    match directives.find(|(_, directive)| directive.name().starts_with(b"limit_req_")) {
        None => Ok(()),
        Some((file, directive)) => {
            let message = "no limit_req in these files: convert the nginx.conf that includes both";
            Err(error(file, directive, message))
        }
    }
}

/// Returns each directive of a name that is in `http`, with its file.
fn named<'a>(
    all: &'a NginxFiles,
    name: &'static [u8],
) -> impl Iterator<Item = (&'a NginxFile, &'a NginxDirective)> {
    all.in_http().filter(move |(_, directive)| directive.name() == name)
}

/// Returns the error of a directive, with its name.
pub(super) fn error(file: &NginxFile, directive: &NginxDirective, message: &str) -> ConvertError {
    let name = directive.name().escape_ascii();
    ConvertError { place: file.place(directive), message: format!("{name}: {message}") }
}

/// Returns a name that no word of the configuration contains: another module may have a zone of any name.
fn unused_name(all: &NginxFiles, base: &str) -> String {
    let words = || {
        let directives = all.files.iter().flat_map(|file| &file.directives);
        directives.flat_map(NginxDirective::parameters)
    };
    let is_used = |name: &str| {
        words().any(|word| word.windows(name.len()).any(|part| part == name.as_bytes()))
    };
    let mut name = base.to_owned();
    let mut number = 2_usize;
    while is_used(&name) {
        name = format!("{base}_{number}");
        number = number.saturating_add(1);
    }
    name
}
