//! Where secrets come from, and that they go nowhere.

use std::fs;

use secrecy::ExposeSecret as _;

use super::{bad, file, good, refused};
use crate::Sources;

/// A provider whose key is written like this in the file.
fn keyed(key: &str) -> Sources {
    file(&format!("[default.models.primary]\nbase_url = \"http://a/v1\"\nmodel = \"m\"\napi_key = \"{key}\""))
}

#[track_caller]
fn check(sources: &Sources, expected: &str) {
    let config = good(sources);
    assert_eq!(config.settings().models["primary"].api_key.as_ref().unwrap().0.expose_secret(), expected);
    // It is in nothing that can be printed.
    let printed = format!("{config:?}{}{}{}", config.show(), config.show_json(), config.explain("models.primary.api_key").unwrap());
    assert!(!printed.contains(expected), "{printed}");
}

#[test]
fn a_reference_is_followed() {
    check(&keyed("env:OPENAI").with_env(&[("OPENAI", "s3cret-value")]), "s3cret-value");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "fr0m-a-file\n").unwrap();
    check(&keyed(&format!("file:{}", folder.path().join("key").display())), "fr0m-a-file");
    check(&keyed("cred:key").with_env(&[("CREDENTIALS_DIRECTORY", folder.path().to_str().unwrap())]), "fr0m-a-file");
    // A relative path starts at the folder of the file that says it.
    let mut sources = keyed("file:key");
    if let crate::File::Text { path, .. } = &mut sources.files[0] {
        *path = folder.path().join("ambit.toml");
    }
    check(&sources, "fr0m-a-file");
}

#[test]
fn a_literal_is_for_dev_or_a_variable() {
    refused(
        &keyed("sk-literal"),
        &["ambit.toml:4: `models.primary.api_key`: a secret in clear text, which is accepted in profile `dev` only"],
    );
    check(&keyed("sk-literal").with_profile("dev"), "sk-literal");
    check(&keyed("env:NO").with_env(&[("AMBIT_MODELS__PRIMARY__API_KEY", "sk-from-variable")]), "sk-from-variable");
    check(&keyed("env:NO").with_env(&[("AMBIT_MODELS__PRIMARY__API_KEY", "env:YES"), ("YES", "sk-from-afar")]), "sk-from-afar");
    let on_the_command_line = keyed("env:NO").with_sets(&["models.primary.api_key=sk-argument"]);
    refused(
        &on_the_command_line,
        &["--set models.primary.api_key: `models.primary.api_key`: a secret in clear text, which is accepted in profile `dev` only"],
    );
    assert!(!bad(&on_the_command_line).to_string().contains("sk-argument"));
}

#[test]
fn a_reference_that_leads_nowhere_says_so() {
    let place = "ambit.toml:4: `models.primary.api_key`";
    refused(&keyed("env:NO_SUCH"), &[&format!("{place}: the variable `NO_SUCH` is not set")]);
    refused(&keyed("env:EMPTY").with_env(&[("EMPTY", "")]), &[&format!("{place}: the secret is empty")]);
    refused(&keyed("file:/no/such/file"), &[&format!("{place}: cannot read `/no/such/file`: No such file or directory (os error 2)")]);
    refused(&keyed("cred:key"), &[&format!("{place}: there are no credentials here: `CREDENTIALS_DIRECTORY` is not set")]);
    refused(
        &keyed("cred:../key").with_env(&[("CREDENTIALS_DIRECTORY", "/tmp")]),
        &[&format!("{place}: `../key` is no name of a credential")],
    );
}

#[test]
fn a_file_is_read_up_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let length = usize::try_from(crate::SECRET_BYTES_MAX).unwrap();
    fs::write(&path, "x".repeat(length)).unwrap();
    good(&keyed(&format!("file:{}", path.display())));
    fs::write(&path, "x".repeat(length + 1)).unwrap();
    refused(
        &keyed(&format!("file:{}", path.display())),
        &[&format!("ambit.toml:4: `models.primary.api_key`: cannot read `{}`: it is larger than 65536 bytes", path.display())],
    );
}

#[test]
fn a_wrong_kind_of_secret_is_not_repeated() {
    let errors = bad(&file("[default.models.primary]\napi_key = 123456789\nheaders = \"Bearer abcdef\""));
    assert!(!errors.to_string().contains("123456789") && !errors.to_string().contains("abcdef"), "{errors}");
}

#[test]
fn headers_that_do_not_sound_like_secrets_may_be_literal() {
    let text =
        |header: &str| format!("[default.models.primary]\nbase_url = \"http://a/v1\"\nmodel = \"m\"\nheaders = {{ {header} = \"value\" }}");
    good(&file(&text("x-title")));
    refused(
        &file(&text("x-api-key")),
        &["ambit.toml:4: `models.primary.headers.x-api-key`: a secret in clear text, which is accepted in profile `dev` only"],
    );
}
