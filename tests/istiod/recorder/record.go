package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"google.golang.org/grpc"
	"sigs.k8s.io/yaml"

	"istio.io/istio/pkg/test"
)

// Records the cases that the arguments name, one after the other.
func recordAll() {
	check(readDefinitions())
	for _, folder := range flag.Args() {
		fmt.Println(started + folder)
		err := record(folder)
		if err != nil {
			fmt.Println(failed+folder+":", err)
			continue
		}
		fmt.Println(recorded + folder)
	}
}

func record(folder string) error {
	if *statuses {
		return recordStatuses(folder)
	}
	text, err := os.ReadFile(filepath.Join(folder, "proxies.yaml"))
	if err != nil {
		return err
	}
	var proxies []proxy
	if err := yaml.Unmarshal(text, &proxies); err != nil {
		return err
	}
	answersOf := texts
	if *clusters {
		world, err := startWorld(folder)
		if err != nil {
			return err
		}
		defer world.stop()
		answersOf = world.texts
	}
	first, err := answersOf(folder, proxies)
	if err != nil {
		return err
	}
	for range *runs - 1 {
		next, err := answersOf(folder, proxies)
		if err != nil {
			return err
		}
		for file, text := range first {
			if !bytes.Equal(text, next[file]) {
				fmt.Fprintf(os.Stderr, "%s/%s: istiod's answers differ from run to run\n", folder, file)
				delete(first, file)
			}
		}
	}
	for _, of := range proxies {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(first)), func(file string) bool { return filepath.Dir(file) == of.Name }) {
			return fmt.Errorf("%s: all answers differ from run to run", of.Name)
		}
	}
	return write(filepath.Join(folder, *outName), proxies, first)
}

// What istiod answers to each proxy, by <proxy>/<type>.json.
func texts(folder string, proxies []proxy) (map[string][]byte, error) {
	out := map[string][]byte{}
	var inner error
	outer := test.Wrap(func(t test.Failer) { inner = askAll(t, folder, proxies, out) })
	return out, errors.Join(inner, outer)
}

func askAll(t test.Failer, folder string, proxies []proxy, out map[string][]byte) error {
	server, err := start(t, folder)
	if err != nil {
		return err
	}
	connection, err := connect(server)
	if err != nil {
		return err
	}
	defer connection.Close()
	return askEach(connection, proxies, out)
}

func askEach(connection *grpc.ClientConn, proxies []proxy, out map[string][]byte) error {
	// A gateway gets the scope of its namespace's sidecars where one of them came before it, and its own where none did.
	order := slices.Clone(proxies)
	slices.SortStableFunc(order, func(a, b proxy) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, of := range order {
		got, err := ask(connection, of)
		if err != nil {
			return fmt.Errorf("%s: %w", of.Name, err)
		}
		for kind, resources := range got {
			text, err := canonical(resources)
			if err != nil {
				return err
			}
			out[filepath.Join(of.Name, kind+".json")] = text
		}
	}
	return nil
}

func write(folder string, proxies []proxy, texts map[string][]byte) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for _, of := range proxies {
		if err := os.MkdirAll(filepath.Join(folder, of.Name), 0o755); err != nil {
			return err
		}
	}
	for file, text := range texts {
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Records cases one after the other; each has its own istiod.
func recordEach(files []string) {
	bad := 0
	for _, file := range files {
		folder := filepath.Dir(file)
		if err := record(folder); err != nil {
			fmt.Fprintln(os.Stderr, failed+folder+":", err)
			bad++
			continue
		}
		fmt.Fprintln(os.Stderr, recorded+folder)
	}
	fmt.Fprintf(os.Stderr, "recorder: %d cases, %d not recorded\n", len(files), bad)
}
