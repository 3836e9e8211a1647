// A schema registry in a process of its own: franz-go's srfake, over HTTP or TLS, on a free port that it prints.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	auth := flag.String("auth", "", "the Authorization header that each request must have")
	certificate := flag.String("cert", "", "PEM")
	key := flag.String("key", "", "PEM")
	clients := flag.String("clients", "", "the CA, in PEM, whose certificates clients must have")
	flag.Parse()
	var options []srfake.Option
	if *auth != "" {
		options = append(options, srfake.WithAuth(*auth))
	}
	server := &http.Server{Handler: srfake.NewRegistry(options...).Handler()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *key)
		fail(err)
		config := &tls.Config{Certificates: []tls.Certificate{pair}}
		if *clients != "" {
			pem, err := os.ReadFile(*clients)
			fail(err)
			config.ClientCAs = x509.NewCertPool()
			config.ClientCAs.AppendCertsFromPEM(pem)
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		listener = tls.NewListener(listener, config)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	// It ends with its standard input.
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }()
	fail(server.Serve(listener))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
