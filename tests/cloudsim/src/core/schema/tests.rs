use super::*;
use serde_json::json;

fn description() -> Description {
    serde_json::from_value(json!({
        "methods": {"things.insert": {
            "httpMethod": "POST", "path": "v1/projects/{project}/things/{+thing}:make", "request": "Thing", "response": "Thing",
            "parameters": {
                "project": {"type": "string", "location": "path", "required": true, "pattern": "[a-z]+"},
                "thing": {"type": "string", "location": "path", "required": true},
                "count": {"type": "integer", "format": "uint32", "location": "query"},
            },
        }},
        "schemas": {
            "Thing": {"type": "object", "properties": {
                "name": {"type": "string", "pattern": "[a-z]+", "requiredBy": ["things.insert"]},
                "id": {"type": "string", "format": "uint64", "readOnly": true},
                "size": {"type": "string", "format": "int64"},
                "port": {"type": "integer", "format": "int32"},
                "idle": {"type": "integer", "least": 4, "most": 30},
                "mode": {"type": "string", "enum": ["A", "B"]},
                "parts": {"type": "array", "items": {"$ref": "Part"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "Part": {"type": "object", "properties": {"on": {"type": "boolean"}}},
        },
    }))
    .unwrap()
}

fn found(value: &Value, way: Way<'_>) -> Vec<(String, Why)> {
    let found = description().check("Thing", "resource", value, way);
    found.into_iter().map(|finding| (finding.at, finding.why)).collect()
}

#[test]
fn each_mismatch_of_a_request_is_found_with_its_place() {
    let way = Way::In("things.insert");
    assert_eq!(
        found(&json!({"name": "a", "size": "5", "port": 1, "parts": [{"on": true}], "labels": {"k": "v"}}), way),
        []
    );
    let at = |name: &str, why| vec![(format!("resource.{name}"), why)];
    assert_eq!(found(&json!({}), way), at("name", Why::Missing));
    assert_eq!(found(&json!({"name": "a", "nmae": "b"}), way), at("nmae", Why::Unknown));
    assert_eq!(found(&json!({"name": "A"}), way), at("name", Why::Pattern("[a-z]+".to_owned())));
    assert_eq!(found(&json!({"name": "a", "mode": "C"}), way), at("mode", Why::Value));
    assert_eq!(found(&json!({"name": "a", "id": "1"}), way), at("id", Why::ReadOnly));
    assert_eq!(found(&json!({"name": "a", "port": true}), way), at("port", Why::Type("TYPE_INT32".to_owned())));
    assert_eq!(found(&json!({"name": "a", "size": "x"}), way), at("size", Why::Type("TYPE_INT64".to_owned())));
    let parts = json!({"name": "a", "parts": [{}, {"on": "x"}]});
    assert_eq!(found(&parts, way), at("parts[1].on", Why::Type("TYPE_BOOL".to_owned())));
}

#[test]
fn answers_write_long_numbers_as_texts_and_have_no_nulls() {
    assert_eq!(found(&json!({"id": "1", "size": "5"}), Way::Out), []);
    let text = |name: &str| vec![(format!("resource.{name}"), Why::Type("TYPE_STRING".to_owned()))];
    assert_eq!(found(&json!({"size": 5}), Way::Out), text("size"));
    assert_eq!(found(&json!({"name": null}), Way::Out), text("name"));
    assert_eq!(found(&json!({"size": 5, "name": "a"}), Way::In("things.insert")), []);
}

#[test]
fn parameters_are_checked_in_path_and_query() {
    let description = description();
    let method = &description.methods["things.insert"];
    let path = method.path_values("/v1/projects/p/things/t:make").unwrap();
    assert_eq!(path, [("project", "p"), ("thing", "t")]);
    assert_eq!(method.path_values("/v1/projects/p/things/t"), None);
    let check = |query: &[(&str, &str)]| {
        let query: Vec<(String, String)> = query.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        description.check_parameters(method, &path, &query).into_iter().map(|f| (f.at, f.why)).collect::<Vec<_>>()
    };
    assert_eq!(check(&[("count", "3")]), []);
    assert_eq!(check(&[("count", "-3")]), [("count".to_owned(), Why::Type("TYPE_UINT32".to_owned()))]);
    assert_eq!(check(&[("cuont", "3")]), [("cuont".to_owned(), Why::Unknown)]);
    assert_eq!(check(&[("project", "p")]), [("project".to_owned(), Why::Unknown)]);
}

#[test]
fn numbers_have_ranges() {
    let way = Way::In("things.insert");
    assert_eq!(found(&json!({"name": "a", "idle": 30}), way), []);
    let wrong = vec![("resource.idle".to_owned(), Why::Range(Some(4), Some(30)))];
    assert_eq!(found(&json!({"name": "a", "idle": 3}), way), wrong);
    assert_eq!(found(&json!({"name": "a", "idle": 31}), way), wrong);
}
