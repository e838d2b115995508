package main

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// What istiod does beside answering would change the world of a case.
var onlyAnswers = []string{
	"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false", "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER=false",
	"PILOT_ENABLE_GATEWAY_API_STATUS=false", "PILOT_ENABLE_ANALYSIS=false", "POD_NAMESPACE=istio-system", "POD_NAME=istiod",
}

// What pilot-discovery answers to each proxy, by <proxy>/<type>.json.
func (w *realWorld) texts(_ string, proxies []proxy) (map[string][]byte, error) {
	program, address, err := w.startIstiod()
	if err != nil {
		return nil, err
	}
	defer end(program)
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return w.quiet(connection, proxies)
}

// Asks until istiod answers the same as before: of remote clusters it may learn after it has said that it is ready. Answers that never
// come to rest are left out.
func (w *realWorld) quiet(connection *grpc.ClientConn, proxies []proxy) (map[string][]byte, error) {
	const pause, limit = time.Second, 15
	var before map[string][]byte
	for range limit {
		got := map[string][]byte{}
		if err := askEach(connection, proxies, got); err != nil {
			return nil, err
		}
		if maps.EqualFunc(before, got, bytes.Equal) {
			return got, nil
		}
		before = got
		time.Sleep(pause)
	}
	got := map[string][]byte{}
	err := askEach(connection, proxies, got)
	maps.DeleteFunc(got, func(file string, text []byte) bool {
		differs := !bytes.Equal(text, before[file])
		if differs {
			fmt.Fprintf(os.Stderr, "%s/%s: istiod's answers differ from time to time\n", w.folder, file)
		}
		return differs
	})
	return got, err
}

// Starts pilot-discovery on the API server of the primary cluster and waits until it is ready.
func (w *realWorld) startIstiod(more ...string) (*exec.Cmd, string, error) {
	ready, address := freeAddress(), freeAddress()
	arguments := []string{
		"discovery", "--kubeconfig=" + filepath.Join(w.temporary, w.local, "kubeconfig"), "--clusterID=" + w.local,
		"--httpAddr=" + ready, "--httpsAddr=", "--grpcAddr=" + address, "--secureGRPCAddr=", "--monitoringAddr=" + freeAddress(),
		"--ctrlz_port=0",
	}
	for flag, name := range map[string]string{"meshConfig": "mesh.yaml", "networksConfig": "networks.yaml"} {
		file := filepath.Join(w.folder, name)
		if _, err := os.Stat(file); err != nil {
			// The default is a file of the folder in which istiod is started.
			file = filepath.Join(w.temporary, "none")
		}
		arguments = append(arguments, "--"+flag+"="+file)
	}
	program, err := w.start("istiod", slices.Concat(onlyAnswers, more, w.environment()), filepath.Join(*istiodProgram, "pilot-discovery"), arguments...)
	if err != nil {
		return nil, "", err
	}
	err = poll("istiod", func() error { return isFine(http.DefaultClient, "http://"+ready+"/ready") })
	if err != nil {
		end(program)
		log, _ := os.ReadFile(filepath.Join(w.temporary, "istiod.log"))
		return nil, "", fmt.Errorf("%w\n%s", err, tail(string(log)))
	}
	return program, address, nil
}

// Whether a resource is a Service that an API server makes for itself.
func isOwnService(item map[string]any) bool {
	name, _ := item["name"].(string)
	return strings.HasPrefix(name, "default/kubernetes.default.svc.")
}
