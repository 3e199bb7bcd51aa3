//! The panels of the dashboard.

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Panel {
    pub(super) id: u64,
    pub(super) title: String,
    pub(super) grid_pos: Cell,
    #[serde(default)]
    field_config: Value,
    /// None in a row, which is a heading.
    #[serde(default)]
    pub(super) targets: Vec<Target>,
}

/// In cells of the dashboard, which is 24 wide.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Cell {
    pub(super) x: u16,
    pub(super) y: u16,
    pub(super) w: u16,
    pub(super) h: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    #[serde(rename = "expr")]
    pub(super) query: String,
    legend_format: String,
    #[serde(skip)]
    pub(super) series: Vec<Series>,
}

/// Times in seconds with values, none of which is NaN.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) fn read(dashboard: &str) -> anyhow::Result<Vec<Panel>> {
    #[derive(Deserialize)]
    struct Dashboard {
        panels: Vec<Panel>,
    }
    let dashboard: Dashboard = serde_json::from_str(dashboard).context("the dashboard is not as expected")?;
    Ok(dashboard.panels)
}

impl Panel {
    pub(super) fn unit(&self) -> &str {
        self.field_config.pointer("/defaults/unit").and_then(Value::as_str).unwrap_or_default()
    }
}

impl Target {
    /// Takes the answer of Prometheus to a query over time.
    pub(super) fn take(&mut self, answer: &str) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Found {
            metric: Map<String, Value>,
            values: Vec<(f64, String)>,
        }
        let found: Vec<Found> = serde_json::from_str(answer).context("the answer of Prometheus is not as expected")?;
        for Found { metric, values } in found {
            let points = values.iter().filter_map(|(at, value)| Some((*at, value.parse::<f64>().ok()?)));
            let points: Vec<(f64, f64)> = points.filter(|(_, value)| value.is_finite()).collect();
            if !points.is_empty() {
                self.series.push(Series { name: legend(&self.legend_format, &metric), points });
            }
        }
        Ok(())
    }
}

/// The legend with the values of the labels.
fn legend(format: &str, labels: &Map<String, Value>) -> String {
    let filled = labels.iter().fold(format.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or_default())
    });
    // A label without a value.
    let parts = filled.split("{{").enumerate();
    let parts = parts.map(|(at, part)| if at == 0 { part } else { part.split_once("}}").map_or(part, |cut| cut.1) });
    parts.collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_of_nothing_but_nan_is_no_data() {
        let mut target = Target { legend_format: "{{verb}} {{kind}}".to_owned(), ..Target::default() };
        let answer = r#"[{"metric": {"verb": "GET", "le": "1"}, "values": [[1, "NaN"], [2.5, "3"], [3, "+Inf"]]},
            {"metric": {}, "values": [[1, "NaN"]]}]"#;
        target.take(answer).unwrap();
        let [series] = target.series.as_slice() else { panic!("{target:?}") };
        assert_eq!((series.name.as_str(), series.points.as_slice()), ("GET", [(2.5, 3.0)].as_slice()));
    }
}
