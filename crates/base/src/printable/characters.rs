//! The characters that a terminal obeys or hides instead of showing them, by the properties of
//! Unicode that make them so.

use std::ops::RangeInclusive;

type Ranges = &'static [RangeInclusive<char>];

/// `General_Category=Cc`: they move the cursor, ring, or begin an escape sequence.
const CC: Ranges = &['\0'..='\u{1f}', '\u{7f}'..='\u{9f}'];
/// `General_Category=Zl` and `Zp`: some programs begin a line there.
const ZL_ZP: Ranges = &['\u{2028}'..='\u{2029}'];
/// `Bidi_Control`: they change the order of the characters around them.
const BIDI_CONTROL: Ranges = &[
    '\u{61c}'..='\u{61c}',
    '\u{200e}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2066}'..='\u{2069}',
];
/// `General_Category=Cf` without `Prepended_Concatenation_Mark`, whose characters are visible signs
/// of Arabic, Syriac and Kaithi texts.
const CF: Ranges = &[
    '\u{ad}'..='\u{ad}',
    '\u{61c}'..='\u{61c}',
    '\u{180e}'..='\u{180e}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{2064}',
    '\u{2066}'..='\u{206f}',
    '\u{feff}'..='\u{feff}',
    '\u{fff9}'..='\u{fffb}',
    '\u{13430}'..='\u{1343f}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0001}'..='\u{e0001}',
    '\u{e0020}'..='\u{e007f}',
];
/// `Default_Ignorable_Code_Point`: they have neither a shape nor a width, so that two texts that
/// differ look the same. Fillers, selectors of variants and tags are among them.
const DEFAULT_IGNORABLE_CODE_POINT: Ranges = &[
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fff8}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

const UNPRINTABLE: [Ranges; 5] = [CC, ZL_ZP, BIDI_CONTROL, CF, DEFAULT_IGNORABLE_CODE_POINT];

/// Whether a character could change how the text around it is shown, could be overlooked, or
/// starts a new line.
#[must_use]
pub fn is_unprintable(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    UNPRINTABLE
        .iter()
        .flat_map(|ranges| ranges.iter())
        .any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn the_table_is_that_of_unicode() {
        let listed = Regex::new(
            r"^[[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Bidi_Control}\p{Default_Ignorable_Code_Point}]--\p{Prepended_Concatenation_Mark}]$",
        )
        .unwrap();

        let mut buffer = [0; 4];
        let wrong: Vec<char> = ('\0'..=char::MAX)
            .filter(|one| listed.is_match(one.encode_utf8(&mut buffer)) != is_unprintable(*one))
            .collect();
        assert_eq!(wrong, Vec::<char>::new());
    }

    #[test]
    fn invisible_characters_are_unprintable() {
        for range in [
            '\0'..='\u{1f}',
            '\u{7f}'..='\u{9f}',
            '\u{ad}'..='\u{ad}',
            '\u{34f}'..='\u{34f}',
            '\u{115f}'..='\u{1160}',
            '\u{180e}'..='\u{180e}',
            '\u{200b}'..='\u{200f}',
            '\u{2028}'..='\u{202e}',
            '\u{2060}'..='\u{2064}',
            '\u{2066}'..='\u{206f}',
            '\u{3164}'..='\u{3164}',
            '\u{fe00}'..='\u{fe0f}',
            '\u{feff}'..='\u{feff}',
            '\u{ffa0}'..='\u{ffa0}',
            '\u{fff9}'..='\u{fffb}',
            '\u{1d173}'..='\u{1d17a}',
            '\u{e0000}'..='\u{e007f}',
            '\u{e0100}'..='\u{e01ef}',
        ] {
            for character in range {
                assert!(is_unprintable(character), "U+{:04X}", u32::from(character));
            }
        }
    }

    #[test]
    fn ordinary_text_is_printable() {
        for text in [
            " !~Az09",
            "grün é e\u{301} ñ",
            "中文 日本語 한국어",
            "🚀 ✔ → …",
            "مرحبا بالعالم \u{600}\u{6dd}",
            "שלום",
            "नमस्ते",
            "\u{fffd}",
        ] {
            let hidden: Vec<char> = text.chars().filter(|one| is_unprintable(*one)).collect();
            assert_eq!(hidden, Vec::<char>::new(), "{text}");
        }
    }
}
