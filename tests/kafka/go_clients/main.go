// Clients of Go at secured listeners: franz-go and kafka-go; see tests/kafka/secured_clients.py.
//
// In: the path of a JSON list of cases. Out: a JSON object, by "client case": "ok", or what the client's error says.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	kafka "github.com/segmentio/kafka-go"
	ksasl "github.com/segmentio/kafka-go/sasl"
	kplain "github.com/segmentio/kafka-go/sasl/plain"
	kscram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type test struct {
	Name, Address, Protocol, Mechanism, User, Password, Token, Ca, Certificate, Key, Topic string
	TlsVersion                                                                             string `json:"tls_version"`
	Seconds                                                                                int
}

func (t test) tls() (*tls.Config, error) {
	if t.Protocol != "SSL" && t.Protocol != "SASL_SSL" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.Ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if version := map[string]uint16{"TLSv1.1": tls.VersionTLS11, "TLSv1.2": tls.VersionTLS12}[t.TlsVersion]; version != 0 {
		config.MinVersion, config.MaxVersion = version, version
	}
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func franz(ctx context.Context, t test) error {
	config, err := t.tls()
	if err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(t.Address), kgo.RequestRetries(2), kgo.RetryTimeout(time.Duration(t.Seconds) * time.Second),
		kgo.ConsumeTopics(t.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(t.Topic),
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	var mechanism sasl.Mechanism
	switch t.Mechanism {
	case "PLAIN":
		mechanism = plain.Auth{User: t.User, Pass: t.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		mechanism = scram.Auth{User: t.User, Pass: t.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		mechanism = scram.Auth{User: t.User, Pass: t.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		mechanism = oauth.Auth{Token: t.Token}.AsMechanism()
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Value: []byte("franz-go")}).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			return nil
		}
	}
}

// Bearer is OAUTHBEARER, which kafka-go leaves to its users.
type bearer struct{ token string }

func (b bearer) Name() string { return "OAUTHBEARER" }
func (b bearer) Start(context.Context) (ksasl.StateMachine, []byte, error) {
	return b, []byte("n,,\x01auth=Bearer " + b.token + "\x01\x01"), nil
}
func (b bearer) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	return false, []byte{1}, nil
}

func segment(ctx context.Context, t test) error {
	config, err := t.tls()
	if err != nil {
		return err
	}
	var mechanism ksasl.Mechanism
	switch t.Mechanism {
	case "PLAIN":
		mechanism = kplain.Mechanism{Username: t.User, Password: t.Password}
	case "SCRAM-SHA-256":
		mechanism, err = kscram.Mechanism(kscram.SHA256, t.User, t.Password)
	case "SCRAM-SHA-512":
		mechanism, err = kscram.Mechanism(kscram.SHA512, t.User, t.Password)
	case "OAUTHBEARER":
		mechanism = bearer{t.Token}
	}
	if err != nil {
		return err
	}
	dialer := &kafka.Dialer{Timeout: time.Duration(t.Seconds) * time.Second, TLS: config, SASLMechanism: mechanism}
	connection, err := dialer.DialLeader(ctx, "tcp", t.Address, t.Topic, 0)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(time.Duration(t.Seconds) * time.Second)); err != nil {
		return err
	}
	if _, err := connection.WriteMessages(kafka.Message{Value: []byte("kafka-go")}); err != nil {
		return err
	}
	if _, err := connection.Seek(0, kafka.SeekStart); err != nil {
		return err
	}
	_, err = connection.ReadMessage(1 << 20)
	return err
}

func run(client func(context.Context, test) error, t test) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(t.Seconds)*time.Second)
	defer cancel()
	err := client(ctx, t)
	if err == nil {
		return "ok"
	}
	inner := err
	for next := errors.Unwrap(inner); next != nil; next = errors.Unwrap(inner) {
		inner = next
	}
	return fmt.Sprintf("%T: %v", inner, err)
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	var tests []test
	if err == nil {
		err = json.Unmarshal(data, &tests)
	}
	if err != nil {
		panic(err)
	}
	answers := map[string]string{}
	var lock sync.Mutex
	var running sync.WaitGroup
	for name, client := range map[string]func(context.Context, test) error{"franz-go": franz, "kafka-go": segment} {
		for _, t := range tests {
			running.Add(1)
			go func() {
				defer running.Done()
				answer := run(client, t)
				lock.Lock()
				answers[name+" "+t.Name] = answer
				lock.Unlock()
			}()
		}
	}
	running.Wait()
	_ = json.NewEncoder(os.Stdout).Encode(answers)
}
