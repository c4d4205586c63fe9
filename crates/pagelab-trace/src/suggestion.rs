//! Suggests what an unknown name was probably meant to be.

/// The known name with the smallest edit distance to `text`; none if that is more than one edit per three letters.
pub fn nearest<'n>(text: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = text.to_lowercase();
    let slips = |name: &str| strsim::damerau_levenshtein(&lower, &name.to_lowercase());
    let (slips, name) = known.into_iter().map(|name| (slips(name), name)).min_by_key(|&(slips, _)| slips)?;
    (slips <= (text.chars().count() / 3).max(1)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn typos_are_recognised_and_other_words_are_not() {
        let known = ["radix", "radix-2m", "nested-radix", "hashed-open"];
        for (text, name) in [
            ("raddix", Some("radix")),
            ("Radix", Some("radix")),
            ("radxi", Some("radix")),
            ("radix-2", Some("radix-2m")),
            ("nested_radix", Some("nested-radix")),
            ("cubist", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, known), name, "{text}");
        }
        assert_eq!(nearest("radix", []), None);
    }
}
