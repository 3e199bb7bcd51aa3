// Prints the flags, feature gates, configuration fields, metrics and events of the cloud-controller-manager of the
// k8s.io/cloud-provider in this module, as sorted lines of fields separated by tabs. `upstream.sh` runs it.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/config/install"
	"k8s.io/cloud-provider/config/v1alpha1"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	_ "k8s.io/controller-manager/pkg/features/register"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The arguments are folders of packages, whose sources declare the metrics and emit the events.
func main() {
	lines := map[string]bool{}
	put := func(fields ...string) { lines[strings.Join(fields, "\t")] = true }
	flags(put)
	gates(put)
	config := &v1alpha1.CloudControllerManagerConfiguration{}
	install.Scheme.Default(config)
	fields(put, "", reflect.ValueOf(*config))
	for _, folder := range os.Args[1:] {
		calls(put, folder)
	}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Println(line)
	}
}

func flags(put func(...string)) {
	made, err := options.NewCloudControllerManagerOptions()
	check(err)
	stop := make(chan struct{})
	command := app.NewCloudControllerManagerCommand(
		made, nil, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, stop)
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		put("flag", flag.Name, flag.Value.Type(), strconv.Quote(flag.DefValue), flag.Shorthand,
			strconv.FormatBool(flag.Deprecated != ""))
	})
}

func gates(put func(...string)) {
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		stage := string(spec.PreRelease)
		if stage == "" {
			stage = "GA"
		}
		put("gate", string(name), stage, strconv.FormatBool(spec.Default))
	}
}

// The leaves of the versioned configuration, by the names in its JSON form.
func fields(put func(...string), path string, value reflect.Value) {
	if value.Kind() == reflect.Pointer && value.Type().Elem().Kind() == reflect.Struct && !value.IsNil() {
		value = value.Elem()
	}
	_, isDuration := value.Interface().(metav1.Duration)
	if value.Kind() != reflect.Struct || isDuration {
		text, err := json.Marshal(value.Interface())
		check(err)
		put("config", path, strings.TrimPrefix(value.Type().String(), "*"), string(text))
		return
	}
	for i := range value.NumField() {
		field := value.Type().Field(i)
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		name := field.Name
		if tag != "" {
			name = tag
		}
		switch {
		case field.Anonymous && tag == "":
			fields(put, path, value.Field(i))
		case path == "":
			fields(put, name, value.Field(i))
		default:
			fields(put, path+"."+name, value.Field(i))
		}
	}
}

// What the sources of a folder call: for metrics New…(&…Opts{…}, labels) and NewDesc(…), for events any function with an
// EventType… before the reason.
func calls(put func(...string), folder string) {
	files := []*ast.File{}
	sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
	check(err)
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		check(err)
		files = append(files, file)
	}
	found := &declared{constants: constants(files), put: put}
	for _, file := range files {
		ast.Inspect(file, found.visit)
	}
}

type declared struct {
	constants map[string]string
	put       func(...string)
}

func constants(files []*ast.File) map[string]string {
	found := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if ok && len(spec.Names) == len(spec.Values) {
				for i, name := range spec.Names {
					if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
						found[name.Name], _ = strconv.Unquote(literal.Value)
					}
				}
			}
			return true
		})
	}
	return found
}

var kinds = map[string]string{
	"CounterOpts": "counter", "GaugeOpts": "gauge", "HistogramOpts": "histogram", "SummaryOpts": "summary",
	"TimingHistogramOpts": "histogram",
}

func (d *declared) visit(node ast.Node) bool {
	call, ok := node.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return true
	}
	for i, argument := range call.Args[:len(call.Args)-1] {
		if kind, ok := strings.CutPrefix(nameOf(argument), "EventType"); ok {
			d.put("event", d.text(call.Args[i+1]), kind)
		}
	}
	function := nameOf(call.Fun)
	if function == "NewDesc" && len(call.Args) >= 6 && d.text(call.Args[0]) != "?" {
		d.put("metric", d.text(call.Args[0]), "desc", nameOf(call.Args[4]), d.labels(call.Args[2]))
	}
	pointer, ok := call.Args[0].(*ast.UnaryExpr)
	if !ok || !strings.HasPrefix(function, "New") {
		return true
	}
	literal, ok := pointer.X.(*ast.CompositeLit)
	if !ok || kinds[nameOf(literal.Type)] == "" {
		return true
	}
	parts, stability := map[string]string{}, "INTERNAL"
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := nameOf(pair.Key); key {
		case "Namespace", "Subsystem", "Name":
			parts[key] = d.text(pair.Value)
		case "StabilityLevel":
			stability = nameOf(pair.Value)
		}
	}
	labels := ""
	if len(call.Args) > 1 {
		labels = d.labels(call.Args[1])
	}
	d.put("metric", join(parts["Namespace"], parts["Subsystem"], parts["Name"]), kinds[nameOf(literal.Type)], stability, labels)
	return true
}

func nameOf(expression ast.Expr) string {
	switch it := expression.(type) {
	case *ast.Ident:
		return it.Name
	case *ast.SelectorExpr:
		return it.Sel.Name
	}
	return ""
}

// The value of a string expression; `?` stands for what the sources of the folder do not say.
func (d *declared) text(expression ast.Expr) string {
	switch it := expression.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(it.Value)
		return text
	case *ast.Ident:
		if text, ok := d.constants[it.Name]; ok {
			return text
		}
	case *ast.BinaryExpr:
		return d.text(it.X) + d.text(it.Y)
	case *ast.CallExpr:
		if nameOf(it.Fun) == "BuildFQName" && len(it.Args) == 3 {
			return join(d.text(it.Args[0]), d.text(it.Args[1]), d.text(it.Args[2]))
		}
	}
	return "?"
}

func (d *declared) labels(expression ast.Expr) string {
	list, ok := expression.(*ast.CompositeLit)
	if !ok {
		if nameOf(expression) == "nil" {
			return ""
		}
		return "?"
	}
	labels := []string{}
	for _, element := range list.Elts {
		labels = append(labels, d.text(element))
	}
	slices.Sort(labels)
	return strings.Join(labels, ",")
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "_")
}
