//! A store's options, from its block or from a caller of the library, and the files that they name.
//! Not part of `http`, which callers do not have.

use super::words::nginx::Files;
use crate::policy::options::OptionError;
use crate::store::registry::StoreSettings;

/// Builds the settings of a store from directives, as names and words, of a caller of the library.
///
/// # Errors
///
/// Those of a `ratelimit_store` block. No message contains a password.
pub fn store_of_options(
    strategy: &[u8],
    options: &[(&[u8], &[u8])],
    files: &impl Files,
) -> Result<StoreSettings, OptionError> {
    let mut builder = StoreSettings::builder(|path| files.read(&files.path(path)));
    let strategy = builder.set(b"strategy", &[strategy]);
    strategy.map_err(|error| error.of("strategy"))?;
    for (name, word) in options {
        builder.set(name, &[word])?;
    }
    let mut settings = builder.finish()?;
    read_files(&mut settings, files)?;
    Ok(settings)
}

/// Reads the files named by a store's directives, and checks that TLS connections can use them.
///
/// # Errors
///
/// The error names the directive, and the problem with its file.
pub(super) fn read_files(
    settings: &mut StoreSettings,
    files: &impl Files,
) -> Result<(), OptionError> {
    for (directive, file) in settings.common.files_mut() {
        file.path = files.path(&file.path);
        let content = files.read(&file.path).map_err(|error| {
            let path = file.path.display();
            let message = format!("cannot read the file \"{path}\" of {directive} ({error})");
            OptionError::new(message).of(directive)
        })?;
        file.content = content.into();
    }
    let Some(tls) = &settings.common.tls else {
        return Ok(());
    };
    // Workers build the same TLS client; its errors are reported now.
    let result = files.check_tls(tls);
    result.map_err(|error| OptionError::new(error.to_string()).of(error.directive()))
}
