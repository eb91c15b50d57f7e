//! Programs that a few tests need and that a fresh machine may not have.

/// Whether a test that needs `what` can run. In CI (`CI` is set) it must; elsewhere it says that it was skipped, and why.
pub fn available(what: &str, found: bool) -> bool {
    let required = std::env::var_os("CI").is_some();
    assert!(found || !required, "{what} is not there, and CI must have it");
    if !found {
        eprintln!("SKIPPED: this machine has no {what}");
    }
    found
}

/// Whether there is a program of this name.
pub fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
