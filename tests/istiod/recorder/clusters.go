package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// A case for which the program pilot-discovery runs: etcd, one kube-apiserver for each cluster, and the objects in them.
type realWorld struct {
	folder    string // of the case
	temporary string
	local     string
	primary   *apiServer
	processes []*exec.Cmd
}

// Starts the API servers of a case and writes its objects.
func startWorld(folder string) (*realWorld, error) {
	temporary, err := os.MkdirTemp("", "recorder")
	if err != nil {
		return nil, err
	}
	w := &realWorld{folder: folder, temporary: temporary, local: "Kubernetes"}
	for _, pair := range w.environment() {
		if id, ok := strings.CutPrefix(pair, "CLUSTER_ID="); ok {
			w.local = id
		}
	}
	if err := w.fill(); err != nil {
		w.stop()
		return nil, err
	}
	return w, nil
}

func (w *realWorld) environment() []string {
	text, _ := os.ReadFile(filepath.Join(w.folder, "env"))
	return strings.Fields(string(text))
}

// The files of objects by cluster, and the clusters in order: the primary first.
func (w *realWorld) inputs() ([]string, map[string]string) {
	files := map[string]string{w.local: filepath.Join(w.folder, "input.yaml")}
	ids := []string{w.local}
	remote, _ := filepath.Glob(filepath.Join(w.folder, "input.*.yaml"))
	for _, file := range remote {
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "input."), ".yaml")
		files[id], ids = file, append(ids, id)
	}
	return ids, files
}

func (w *realWorld) fill() error {
	etcd, err := w.startEtcd()
	if err != nil {
		return err
	}
	if err := writeKeys(w.temporary); err != nil {
		return err
	}
	ids, files := w.inputs()
	servers := make([]*apiServer, len(ids))
	for i, id := range ids {
		if servers[i], err = w.startServer(id, etcd); err != nil {
			return err
		}
	}
	for i, id := range ids {
		if err := servers[i].waitReady(); err != nil {
			return fmt.Errorf("kube-apiserver of %s: %w", id, err)
		}
		if err := servers[i].define(); err != nil {
			return fmt.Errorf("definitions of %s: %w", id, err)
		}
	}
	w.primary = servers[0]
	var all []placed
	for i, id := range ids {
		objects, err := readObjects(files[id])
		if err != nil {
			return fmt.Errorf("%s: %w", files[id], err)
		}
		for _, object := range objects {
			all = append(all, placed{servers[i], object})
		}
	}
	if err := writeAll(all); err != nil {
		return err
	}
	for i, id := range ids[1:] {
		if err := servers[0].join(id, servers[i+1].kubeconfig); err != nil {
			return fmt.Errorf("remote secret of %s: %w", id, err)
		}
	}
	return nil
}

// Ends all processes, the last first.
func (w *realWorld) stop() {
	for _, process := range slices.Backward(w.processes) {
		end(process)
	}
	os.RemoveAll(w.temporary)
}

func end(process *exec.Cmd) {
	process.Process.Kill()
	process.Wait()
}

// Starts a program whose output goes to a file; it ends with this process.
func (w *realWorld) start(log string, environment []string, program string, arguments ...string) (*exec.Cmd, error) {
	command := exec.Command(program, arguments...)
	output, err := os.Create(filepath.Join(w.temporary, log+".log"))
	if err != nil {
		return nil, err
	}
	defer output.Close()
	command.Stdout, command.Stderr, command.Env = output, output, environment
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command, command.Start()
}

func (w *realWorld) startEtcd() (string, error) {
	client, peers := "http://"+freeAddress(), "http://"+freeAddress()
	process, err := w.start("etcd", nil, filepath.Join(*kubePrograms, "etcd"),
		"--data-dir="+filepath.Join(w.temporary, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	if err != nil {
		return "", err
	}
	w.processes = append(w.processes, process)
	return client, poll("etcd", func() error { return isFine(http.DefaultClient, client+"/health") })
}

// Starts the API server of a cluster, which takes a while to be ready.
func (w *realWorld) startServer(id, etcd string) (*apiServer, error) {
	folder := filepath.Join(w.temporary, id)
	address := freeAddress()
	_, port, _ := net.SplitHostPort(address)
	key := filepath.Join(w.temporary, "service-account.key")
	process, err := w.start("kube-apiserver-"+id, nil, filepath.Join(*kubePrograms, "kube-apiserver"),
		"--etcd-servers="+etcd, "--etcd-prefix=/"+id, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+folder,
		"--token-auth-file="+filepath.Join(w.temporary, "tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key,
		"--service-account-signing-key-file="+key, "--service-cluster-ip-range="+serviceRanges, "--allow-privileged=true",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none", "--profiling=false")
	if err != nil {
		return nil, err
	}
	w.processes = append(w.processes, process)
	return &apiServer{
		url: "https://" + address, certificate: filepath.Join(folder, "apiserver.crt"), kubeconfig: filepath.Join(folder, "kubeconfig"),
	}, nil
}

// The addresses of the cases' services.
const serviceRanges = "10.96.0.0/14,fd00:10:96::/112"

const adminToken = "recorder"

// Writes the key of service accounts and the administrator's token.
func writeKeys(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	tokens := adminToken + ",admin,admin,system:masters\n"
	return errors.Join(os.WriteFile(filepath.Join(folder, "service-account.key"), text, 0o600),
		os.WriteFile(filepath.Join(folder, "tokens.csv"), []byte(tokens), 0o600))
}

// Writes the kubeconfig of a server's administrator once the server has its certificate.
func (s *apiServer) writeKubeconfig() (*rest.Config, error) {
	certificate, err := os.ReadFile(s.certificate)
	if err != nil {
		return nil, err
	}
	config := api.Config{
		Clusters:       map[string]*api.Cluster{"it": {Server: s.url, CertificateAuthorityData: certificate}},
		AuthInfos:      map[string]*api.AuthInfo{"admin": {Token: adminToken}},
		Contexts:       map[string]*api.Context{"it": {Cluster: "it", AuthInfo: "admin"}},
		CurrentContext: "it",
	}
	if err := clientcmd.WriteToFile(config, s.kubeconfig); err != nil {
		return nil, err
	}
	return clientcmd.BuildConfigFromFlags("", s.kubeconfig)
}

// An address of this machine that nobody listens on.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	return listener.Addr().String()
}

func isFine(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Tries until it works; the last error says why it never did.
func poll(what string, try func() error) error {
	const pause, limit = 100 * time.Millisecond, 1200
	var err error
	for range limit {
		if err = try(); err == nil {
			return nil
		}
		time.Sleep(pause)
	}
	return fmt.Errorf("%s: %w", what, err)
}
