//! What cargo knows about the workspace.

use std::path::PathBuf;

use serde_json::Value;

use crate::{
    Result,
    command::{cargo, output},
};

/// The answer of `cargo metadata`.
#[derive(Debug)]
pub(crate) struct Metadata(Value);

impl Metadata {
    pub(crate) fn load() -> Result<Self> {
        Self::parse(&output(&mut cargo("metadata --no-deps --format-version 1"))?)
    }

    fn parse(json: &str) -> Result<Self> {
        let value = serde_json::from_str(json);
        Ok(Self(
            value.map_err(|error| format!("cannot read the output of cargo metadata: {error}"))?,
        ))
    }

    /// The names of a package's features, sorted.
    pub(crate) fn features(&self, package: &str) -> Result<Vec<String>> {
        let packages = self.0["packages"].as_array().into_iter().flatten();
        let features = packages
            .filter(|found| found["name"] == package)
            .find_map(|found| found["features"].as_object())
            .ok_or_else(|| format!("the workspace has no package `{package}`"))?;
        let mut names: Vec<String> = features.keys().cloned().collect();
        names.sort();
        Ok(names)
    }

    /// Where cargo builds, wherever the environment or the configuration moved it.
    pub(crate) fn target_directory(&self) -> Result<PathBuf> {
        let directory = self.0["target_directory"].as_str();
        Ok(directory.ok_or("cargo metadata names no target_directory")?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{
        "packages": [
            { "name": "other", "features": { "x": [] } },
            { "name": "pillarbox", "features": { "sqlite": ["dep:sqlx"], "default": ["macros"], "macros": [] } }
        ],
        "target_directory": "somewhere/target"
    }"#;

    #[test]
    fn features_are_those_of_the_package_in_order() {
        let metadata = Metadata::parse(JSON).unwrap();

        assert_eq!(metadata.features("pillarbox").unwrap(), ["default", "macros", "sqlite"]);
    }

    #[test]
    fn a_missing_package_is_named() {
        let error = Metadata::parse(JSON).unwrap().features("pillarbox-testkit").unwrap_err();

        assert_eq!(error.to_string(), "the workspace has no package `pillarbox-testkit`");
    }

    #[test]
    fn the_target_directory_is_cargos() {
        let metadata = Metadata::parse(JSON).unwrap();

        assert_eq!(metadata.target_directory().unwrap(), PathBuf::from("somewhere/target"));
    }
}
