//! The README, taken apart.

const README: &str = include_str!("../../../../README.md");

/// The text of every fenced block in this language.
pub(crate) fn blocks(language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = README.lines();
    while let Some(line) = lines.next() {
        let Some(fence) = line.strip_prefix("```") else { continue };
        let block = lines.by_ref().take_while(|line| *line != "```");
        let block: String = block.flat_map(|line| [line, "\n"]).collect();
        if fence == language {
            blocks.push(block);
        }
    }
    blocks
}

/// The language of every fenced block.
pub(crate) fn languages() -> Vec<&'static str> {
    let fences = README.lines().filter_map(|line| line.strip_prefix("```"));
    fences.step_by(2).collect()
}

/// Every piece of code within a sentence.
pub(crate) fn spans() -> Vec<String> {
    let mut is_text = true;
    let prose = README.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        is_text ^= is_fence;
        is_text && !is_fence
    });
    let prose = prose.collect::<Vec<_>>().join("\n");
    let spans = prose.split('`').skip(1).step_by(2);
    spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}
