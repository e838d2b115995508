//! Tables of variables: parses those in the sources, and writes those of the page.

/// Variables of one topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) title: &'static str,
    /// A line for each variable, ordered by name; columns are separated by `
    /// `.
    pub(super) rows: &'static str,
}

/// The description of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    /// The name; one that ends in `*` matches all names with this prefix.
    pub(super) name: &'static str,
    pub(super) default: Default,
    pub(super) effect: &'static str,
    /// The behaviour if it is not read and no value matches that.
    pub(super) instead: Option<&'static str>,
}

/// The default of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Default {
    /// No default.
    Unset,
    /// This value.
    Value(&'static str),
    Words(&'static str),
}

impl Section {
    pub(super) fn variables(self) -> impl Iterator<Item = Variable> {
        self.rows
            .lines()
            .filter(|line| !line.is_empty())
            .map(Variable::parse)
    }
}

impl Variable {
    /// Parses a row.
    fn parse(row: &'static str) -> Self {
        let mut columns = row.split(" | ");
        let mut column = || {
            columns
                .next()
                .map(str::trim)
                .filter(|column| !column.is_empty())
        };

        let (Some(name), Some(default), Some(effect)) = (column(), column(), column()) else {
            panic!("a name, a default and an effect are needed: {row:?}")
        };

        let instead = column();
        let more = column();
        assert_eq!(more, None, "{row:?} has too many columns");
        let default = match default
            .strip_prefix('`')
            .and_then(|rest| rest.strip_suffix('`'))
        {
            Some(value) if !value.contains('`') => Default::Value(value),
            _ if default == "-" => Default::Unset,
            _ => Default::Words(default),
        };

        Self {
            name,
            default,
            effect,
            instead,
        }
    }

    /// The default as written on the page.
    pub(super) fn shown_default(&self) -> String {
        match self.default {
            Default::Unset => String::new(),
            Default::Value(value) => format!("`{value}`"),
            Default::Words(words) => words.to_owned(),
        }
    }
}

/// A Markdown table; empty without rows.
pub(super) fn table<const COLUMNS: usize>(
    titles: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let escape = |cell: &String| cell.replace('|', "\\|");
    let head = line(titles.iter().map(|title| (*title).to_owned()).collect());
    let rule = line(vec!["---".to_owned(); COLUMNS]);
    let body = rows
        .iter()
        .map(|cells| line(cells.iter().map(escape).collect()));
    std::iter::once(head + &rule)
        .chain(body)
        .chain(["\n".to_owned()])
        .collect()
}

#[test]
fn a_row_has_name_default_and_effect() {
    let read = |row| Variable::parse(row);
    let variable = Variable {
        name: "A",
        default: Default::Value("a|b"),
        effect: "It does.",
        instead: None,
    };
    assert_eq!(read("A | `a|b` | It does."), variable);
    assert_eq!(read("A | - | It does. | nothing").instead, Some("nothing"));
    assert_eq!(
        read("A | as `B` | It does.").default,
        Default::Words("as `B`")
    );
    assert_eq!(
        table(["x", "y"], &[["a|b".to_owned(), "c".to_owned()]]),
        "| x | y |\n| --- | --- |\n| a\\|b | c |\n\n"
    );
}
