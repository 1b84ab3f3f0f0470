//! JSONPath beyond the vectors: positions of errors, values, and hostile input.

use std::time::Instant;

use proptest::prelude::*;
use serde_json::{Value, json};
use stateful_failover::jsonpath::{Budget, JsonPath, MAX_LENGTH, MAX_NESTING, MAX_VISITS};

fn parse_error(template: &str) -> String {
    match JsonPath::template(template) {
        Ok(_) => panic!("{template:?} parses"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn parse_errors_say_where() {
    for (template, error) in [
        ("{.a", "does not parse, at character 4: the action is not closed with `}`"),
        ("ab{.a\n}", "does not parse, at character 6: the action is not closed with `}`"),
        ("é{%x}", "does not parse, at character 3: unexpected character `%`"),
        (
            "{.a['b]}",
            "does not parse, at character 5: `'b` is neither an index, a slice, `*` nor a name in single quotes",
        ),
        (
            "{.a[b]}",
            "does not parse, at character 5: `b` is neither an index, a slice, `*` nor a name in single quotes",
        ),
        ("{.a[0}", "does not parse, at character 5: the brackets are not closed with `]`"),
        ("{.a[?(@.b==1}", "does not parse, at character 7: the filter is not closed with `)]`"),
        ("{.a[?(@.b==%)]}", "does not parse, at character 12: unexpected character `%`"),
        ("{.a[?(%==1)]}", "does not parse, at character 7: unexpected character `%`"),
        (
            "{.a[0,x]}",
            "does not parse, at character 7: `x` is neither an index, a slice, `*` nor a name in single quotes",
        ),
        ("{\"a}", "does not parse, at character 2: the quoted string is not closed"),
        ("{\"\\q\"}", "does not parse, at character 2: `\\q` contains an invalid escape"),
        ("{....a}", "does not parse, at character 4: two recursive descents in a row"),
        ("{1.2.3}", "does not parse, at character 2: `1.2.3` is not a number"),
        (
            "{.a[99999999999999999999]}",
            "does not parse, at character 5: `99999999999999999999` is neither an index, a slice, `*` nor a name in single quotes",
        ),
    ] {
        assert_eq!(parse_error(template), error, "{template}");
    }
}

#[test]
fn execute_errors_say_what_does_not_fit() {
    let status = json!({"a": [1, "x"], "n": null, "o": {"k": 1}});
    for (template, error) in [
        ("{.b}", "`b` is not found"),
        ("{.n.x}", "`x` is not found"),
        ("{.a[2]}", "index 2 is out of bounds, the list has 2 entries"),
        ("{.a[-3]}", "index -1 is out of bounds, the list has 2 entries"),
        ("{.a[1:0]}", "the slice starts at 1, after its end 0"),
        ("{.a[::0]}", "the step of a slice must be greater than 0"),
        ("{.o[0]}", "an object is not a list"),
        ("{.o[?(@.k)]}", "an object is not a list and can't be filtered"),
        ("{.a[?(@==1)]}", "incompatible types for comparison: a string and an integer"),
        ("{.a[?(@=1)]}", "`=` is not an operator of filters"),
        ("{end}", "`end` without a `range`"),
        ("{foo}", "unknown keyword `foo`, expected `range` or `end`"),
    ] {
        assert_eq!(JsonPath::template(template).unwrap().print(&status).unwrap_err().to_string(), error, "{template}");
    }
}

#[test]
fn a_rule_has_no_value_if_it_is_empty_or_the_null_of_a_single_result() {
    let status = json!({"null": null, "empty": "", "list": [], "nulls": [null, null], "text": "null"});
    for (template, value) in [
        ("{.null}", None),
        ("{.empty}", None),
        ("{.list[*]}", None),
        ("", None),
        ("{.nulls[*]}", Some("null null")),
        ("{.nulls[0]}", None),
        ("{.text}", Some("null")),
        ("x{.null}", Some("xnull")),
        ("true", Some("true")),
    ] {
        assert_eq!(
            JsonPath::template(template).unwrap().value(&status, &mut Budget::default()).unwrap().as_deref(),
            value,
            "{template}"
        );
    }
    for (query, value) in
        [("$.null", None), ("$.text", Some("null")), ("$.nowhere", None), ("$.nulls[*]", Some("null null"))]
    {
        assert_eq!(
            JsonPath::from_settings(query).unwrap().value(&status, &mut Budget::default()).unwrap().as_deref(),
            value,
            "{query}"
        );
    }
    assert!(JsonPath::template("{.missing}").unwrap().value(&status, &mut Budget::default()).is_err());
}

/// Source: `k8s.io/apimachinery/pkg/util/json`: an API server reads what fits 64 bits as an integer and everything else
/// as a float, and so nothing else reaches a webhook.
#[test]
fn integers_keep_all_digits() {
    let status: Value = serde_json::from_str(
        r#"{"n": 18446744073709551615, "m": -9223372036854775808, "list": [9007199254740993], "big": 1.2345678901234568e+29}"#,
    )
    .unwrap();
    let print = |template| JsonPath::template(template).unwrap().print(&status).unwrap();
    assert_eq!(print("{.n}"), "18446744073709551615");
    assert_eq!(print("{.m}"), "-9223372036854775808");
    assert_eq!(print("{.list}"), "[9007199254740993]");
    assert_eq!(print("{.big}"), "1.2345678901234568e+29");
}

/// Source: Go, `strconv.FormatFloat(f, 'g', -1, 64)` and `encoding/json`; the first rows are vectors of Karmada's own
/// function, in testdata/vectors.
#[test]
fn floats_print_as_go_prints_them() {
    for (number, text, in_json) in [
        ("0.0001", "0.0001", "0.0001"),
        ("0.00001", "1e-05", "0.00001"),
        ("1.5", "1.5", "1.5"),
        ("-0.0", "-0", "-0"),
        ("999999.0", "999999", "999999"),
        ("1e6", "1e+06", "1000000"),
        ("1734462491693.0", "1.734462491693e+12", "1734462491693"),
        ("1e-7", "1e-07", "1e-7"),
        ("1e21", "1e+21", "1e+21"),
        ("1.25e100", "1.25e+100", "1.25e+100"),
        ("0.1", "0.1", "0.1"),
    ] {
        let status: Value = serde_json::from_str(&format!(r#"{{"n": {number}, "l": [{number}]}}"#)).unwrap();
        let print = |template| JsonPath::template(template).unwrap().print(&status).unwrap();
        assert_eq!(print("{.n}"), text, "{number}");
        assert_eq!(print("{.l}"), format!("[{in_json}]"), "{number}");
    }
}

/// A document with the maximum nesting of the parser, with lists and maps on every level.
fn deep_document() -> Value {
    let mut document = json!({"leaf": [1, 2, 3]});
    for level in 0..100 {
        document = json!({"a": document, "b": [level, "x", {"c": null}]});
    }
    document
}

#[test]
fn hostile_templates_are_bounded() {
    let nested_brackets = format!("{{{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(parse_error(&nested_brackets).contains(&format!("more than {MAX_LENGTH}")));
    let filters = MAX_NESTING + 1;
    let nested_filters = format!("{{.a{}@.b{}}}", "[?(@.a".repeat(filters), ")]".repeat(filters));
    // A closing parenthesis ends the outermost filter, so such a template is not nested at all.
    assert!(JsonPath::template(&nested_filters).is_err());
    let commas = format!("{{[{}]}}", ",".repeat(4000));
    assert!(JsonPath::template(&commas).is_ok());

    let deep = deep_document();
    let start = Instant::now();
    for template in [
        "{..a..b..c}",
        "{..[*]..[*]..[*]}",
        "{..b[*]..b[*]}",
        "{..a..a..a..a..a..a..a}",
        "{range ..a}{range ..a}{range ..a}{@}{end}{end}{end}",
    ] {
        match JsonPath::template(template).unwrap().print(&deep) {
            Ok(text) => assert!(text.len() < 2 * 1024 * 1024),
            Err(error) => assert!(
                error.to_string().starts_with("limit exceeded: more than") || error.to_string().contains("not"),
                "{error}"
            ),
        }
    }
    assert_eq!(parse_error("{..*..*..*}"), "does not parse, at character 4: unexpected character `*`");
    let wide = Value::Array((0..MAX_VISITS).map(Value::from).collect());
    let error = JsonPath::template("{..[*]}").unwrap().print(&json!({"a": wide, "b": wide})).unwrap_err();
    assert_eq!(error.to_string(), format!("limit exceeded: more than {MAX_VISITS} values to visit"));
    for query in ["$..*..*..*", "$..[?@..a && $..b]", "$..[?count($..*) > 1]"] {
        let error = JsonPath::from_settings(query).unwrap().print(&deep).unwrap_err();
        assert_eq!(error.to_string(), format!("limit exceeded: more than {MAX_VISITS} values to visit"), "{query}");
    }
    // There is no limit on the time: without the bound, this test would take minutes.
    assert!(start.elapsed().as_secs() < 60);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        "[a-c./ é]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_template() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "[?(",
        ")]",
        "..",
        ".",
        "*",
        "a",
        "b",
        "c",
        "@",
        "$",
        "'",
        "\"",
        "\\",
        ",",
        ":",
        "-1",
        "0",
        "2",
        "==",
        "<",
        ">=",
        "!",
        " ",
        "range ",
        "end",
        "true",
        "1.5",
        "é",
        "\n",
        "{.a}",
        "{.b[*]}",
        "{range .a}",
        "{end}",
    ]);
    prop::collection::vec(token, 0..16).prop_map(|tokens| tokens.concat())
}

proptest! {
    /// No template and no document makes it panic, and results are deterministic.
    #[test]
    fn any_template_on_any_document_has_an_outcome(template in any_template(), document in any_json()) {
        for parsed in [JsonPath::template(&template), JsonPath::from_settings(&template)].into_iter().flatten() {
            prop_assert_eq!(parsed.print(&document), parsed.print(&document));
        }
    }

    #[test]
    fn any_text_in_braces_has_an_outcome(inside in "\\PC{0,24}", document in any_json()) {
        if let Ok(parsed) = JsonPath::template(&format!("{{{inside}}}")) {
            let _ = parsed.print(&document);
        }
    }

    /// Text without braces is printed as it is.
    #[test]
    fn text_stands_for_itself(text in "[^{}]{0,24}", document in any_json()) {
        prop_assert_eq!(JsonPath::template(&text).unwrap().print(&document), Ok(text));
    }
}
