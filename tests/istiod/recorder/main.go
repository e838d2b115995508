// Program recorder writes what istiod answers to the proxies of parity cases, see docs/parity.md.
//
//	recorder [-prune] [-runs N] [-out NAME] [-clusters | -statuses] FOLDER
//
// FOLDER holds <area>/<case>/ with input.yaml, proxies.yaml and so on; each case gets the folder NAME ("expect"). With -prune
// objects that an API server or Istio's validation would reject are taken out of the inputs first. istiod runs within this process
// over a fake API server. It reads its environment once, when the process starts, keeps what it made of a mesh's access log
// format for the process's life, and may panic: so a child process records the cases of one environment and MeshConfig, and a case
// that ends the child is told and left out.
//
// With -clusters the program pilot-discovery runs instead, with one kube-apiserver for each cluster of a case: only so there is an
// ambient index of several clusters. So it does with -statuses, which records what istiod writes to the objects of the Gateway API.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var (
	prune         = flag.Bool("prune", false, "take out of the inputs what would be rejected")
	outName       = flag.String("out", "expect", "name of the folder of answers in each case")
	runs          = flag.Int("runs", 1, "times that istiod is asked; answers that differ between them are left out")
	child         = flag.Bool("child", false, "record the folders on the standard input in this process")
	clusters      = flag.Bool("clusters", false, "ask the program pilot-discovery, over one kube-apiserver for each cluster of a case")
	statuses      = flag.Bool("statuses", false, "as -clusters, record instead the statuses that istiod writes to the Gateway API's objects")
	istiodProgram = flag.String("istiod", toolFolder("NAVARCH_ISTIOD", "istiod"), "folder of pilot-discovery")
	kubePrograms  = flag.String("kube", toolFolder("KUBEBUILDER_ASSETS", "kube"), "folder of etcd and kube-apiserver")
	istio         = flag.String("istio", os.Getenv("NAVARCH_ISTIO_SOURCE"), "folder of the Istio module, for its CRDs")
)

// What a child says before and after each case.
const started, recorded, failed = "started ", "recorded ", "failed "

func main() {
	flag.Parse()
	if *child {
		recordAll()
		return
	}
	folders, err := filepath.Glob(filepath.Join(flag.Arg(0), "*", "*", "proxies.yaml"))
	if err != nil || len(folders) == 0 {
		fmt.Fprintln(os.Stderr, "recorder: no cases under", flag.Arg(0))
		os.Exit(1)
	}
	if *clusters || *statuses {
		recordEach(folders)
		return
	}
	type settings struct{ environment, mesh string }
	bySettings := map[settings][]string{}
	for _, file := range folders {
		folder := filepath.Dir(file)
		environment, _ := os.ReadFile(filepath.Join(folder, "env"))
		mesh, _ := os.ReadFile(filepath.Join(folder, "mesh.yaml"))
		key := settings{string(environment), string(mesh)}
		bySettings[key] = append(bySettings[key], folder)
	}
	bad := 0
	for of, todo := range bySettings {
		for len(todo) > 0 {
			done, faults := runChild(of.environment, todo)
			bad += faults
			todo = todo[done:]
		}
	}
	fmt.Fprintf(os.Stderr, "recorder: %d cases, %d not recorded\n", len(folders), bad)
}

// The folder that a variable names, or one of those that scripts/tools and scripts/istiod have made.
func toolFolder(variable, name string) string {
	if folder := os.Getenv(variable); folder != "" {
		return folder
	}
	home, _ := os.UserHomeDir()
	return filepath.Join(envOr("NAVARCH_TOOLS", filepath.Join(home, ".cache/navarch/tools")), name)
}

// Cases of one child: istiod's own collections are never freed whole.
const casesOfOneChild = 40

// Records folders in one child process; says how many of them are dealt with, and how many of those without success.
func runChild(environment string, folders []string) (done, bad int) {
	folders = folders[:min(len(folders), casesOfOneChild)]
	command := exec.Command(os.Args[0], append([]string{"-child", "-istio", *istio, "-out", *outName,
		fmt.Sprintf("-prune=%t", *prune), fmt.Sprintf("-runs=%d", *runs)}, folders...)...)
	command.Env = append(os.Environ(), strings.Fields(environment)...)
	log, err := os.CreateTemp("", "recorder")
	check(err)
	command.Stderr = log
	output, err := command.StdoutPipe()
	check(err)
	check(command.Start())
	defer func() { tellLines(log.Name()); os.Remove(log.Name()) }()
	current := ""
	for lines := bufio.NewScanner(output); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, started):
			current = strings.TrimPrefix(line, started)
		case strings.HasPrefix(line, recorded):
			current, done = "", done+1
		case strings.HasPrefix(line, failed):
			fmt.Fprintln(os.Stderr, line)
			current, done, bad = "", done+1, bad+1
		}
	}
	if err := command.Wait(); err != nil && current == "" && done < len(folders) {
		text, _ := os.ReadFile(log.Name())
		fmt.Fprintf(os.Stderr, "recorder: %v\n%s\n", err, tail(string(text)))
		os.Exit(1)
	}
	if current != "" {
		text, _ := os.ReadFile(log.Name())
		fmt.Fprintf(os.Stderr, "failed %s: istiod ended\n%s\n", current, panicOf(string(text)))
		done, bad = done+1, bad+1
	}
	return done, bad
}

// What a child said of objects and answers that are left out.
func tellLines(log string) {
	text, _ := os.ReadFile(log)
	for _, line := range strings.Split(string(text), "\n") {
		if strings.Contains(line, ": rejected: ") || strings.HasSuffix(line, "from run to run") {
			fmt.Fprintln(os.Stderr, line)
		}
	}
}

// The text of a panic, without the stacks of other routines.
func panicOf(log string) string {
	if at := strings.Index(log, "panic: "); at >= 0 {
		log = log[at:]
	}
	lines := strings.SplitN(log, "\n", 40)
	return strings.Join(lines[:min(len(lines), 39)], "\n")
}

func tail(text string) string { return text[max(0, len(text)-4000):] }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "recorder:", err)
		os.Exit(1)
	}
}
