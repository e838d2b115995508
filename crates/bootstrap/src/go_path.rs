//! Joins paths as Go's `path.Join` does, for paths that are visible outside.

/// The path of `name` in `folder`, without `.`, `..` and doubled slashes.
#[must_use]
pub fn join(folder: &str, name: &str) -> String {
    let rooted = folder.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(name.split('/')) {
        match (part, parts.last().copied()) {
            ("" | ".", _) => {}
            ("..", Some(last)) if last != ".." => {
                parts.pop();
            }
            ("..", None) if rooted => {}
            _ => parts.push(part),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::join;

    #[test]
    fn paths_are_cleaned() {
        assert_eq!(join("./etc/istio/proxy", "XDS"), "etc/istio/proxy/XDS");
        assert_eq!(join("/a//b/../c/", "./d"), "/a/c/d");
        assert_eq!(join("", ""), ".");
        assert_eq!(join("../a", "b"), "../a/b");
    }
}
